//! Chooses the implementation once, at start: the fastest that this CPU can run, unless `LINERATE_AEAD` names
//! another.
//!
//! Detection returns the tokens that vector kernels require, so a kernel cannot be called on a CPU without its
//! instructions. If the operating system does not save the wide registers, the CPU counts as one without.

use std::env;
use std::fmt;
use std::sync::OnceLock;

/// The environment variable that overrides the choice: `portable`, `library`, `avx2`, `avx512f` or `avx512`,
/// and `none` in builds with the feature `no-cipher`.
pub const VARIABLE: &str = "LINERATE_AEAD";

/// Proof that this CPU has AVX2 and BMI2.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
pub(crate) struct HaveAvx2(());

/// Proof that this CPU has AVX-512 F, BW and VL, and BMI2.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
pub(crate) struct HaveAvx512F(());

/// Proof that this CPU has AVX-512 IFMA and VBMI2, too.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
pub(crate) struct HaveAvx512(pub(crate) HaveAvx512F);

/// Proof that this CPU has BMI2.
#[cfg(target_arch = "x86_64")]
pub(crate) trait HaveBmi2 {}

#[cfg(target_arch = "x86_64")]
impl HaveBmi2 for HaveAvx2 {}

#[cfg(target_arch = "x86_64")]
impl HaveBmi2 for HaveAvx512F {}

/// An implementation that this CPU can run.
#[derive(Clone, Copy)]
pub struct Choice(pub(crate) Implementation);

#[derive(Clone, Copy)]
pub(crate) enum Implementation {
    Portable,
    Library,
    #[cfg(target_arch = "x86_64")]
    Avx2(HaveAvx2),
    #[cfg(target_arch = "x86_64")]
    Avx512F(HaveAvx512F),
    #[cfg(target_arch = "x86_64")]
    Avx512(HaveAvx512),
    #[cfg(feature = "no-cipher")]
    None,
}

/// A name is unknown, or this CPU cannot run its implementation; the message lists what is available.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnavailableError {
    name: String,
}

impl Choice {
    /// Everything that this CPU can run and that protects packets, slowest first.
    pub fn available() -> impl Iterator<Item = Self> {
        #[cfg(target_arch = "x86_64")]
        let kernels = [
            HaveAvx2::detect().map(Implementation::Avx2),
            HaveAvx512F::detect().map(Implementation::Avx512F),
            HaveAvx512::detect().map(Implementation::Avx512),
        ];
        #[cfg(not(target_arch = "x86_64"))]
        let kernels: [Option<Implementation>; 0] = [];
        [Implementation::Portable, Implementation::Library].into_iter().chain(kernels.into_iter().flatten()).map(Self)
    }

    /// The fastest that this CPU can run.
    pub fn best() -> Self {
        Self::available().last().expect("the library runs everywhere")
    }

    /// The choice called `name`.
    ///
    /// # Errors
    /// If the name is unknown, or this CPU cannot run it.
    pub fn named(name: &str) -> Result<Self, UnavailableError> {
        #[cfg(feature = "no-cipher")]
        if name == Self(Implementation::None).name() {
            return Ok(Self(Implementation::None));
        }
        Self::available().find(|choice| choice.name() == name).ok_or_else(|| UnavailableError { name: name.into() })
    }

    /// The name, as in [`VARIABLE`].
    pub fn name(&self) -> &'static str {
        match self.0 {
            Implementation::Portable => "portable",
            Implementation::Library => "library",
            #[cfg(target_arch = "x86_64")]
            Implementation::Avx2(_) => "avx2",
            #[cfg(target_arch = "x86_64")]
            Implementation::Avx512F(_) => "avx512f",
            #[cfg(target_arch = "x86_64")]
            Implementation::Avx512(_) => "avx512",
            #[cfg(feature = "no-cipher")]
            Implementation::None => "none",
        }
    }

    /// A warning for the user if this choice does not protect packets.
    pub fn warning(&self) -> Option<&'static str> {
        match self.0 {
            #[cfg(feature = "no-cipher")]
            Implementation::None => Some(crate::no_cipher::WARNING),
            _ => None,
        }
    }
}

/// The choice that [`VARIABLE`] names, or the best if it is unset or empty. A daemon calls this at start to
/// report an unavailable choice.
///
/// # Errors
/// If the variable names an unavailable choice.
pub fn from_environment() -> Result<Choice, UnavailableError> {
    match env::var_os(VARIABLE) {
        Some(name) if !name.is_empty() => Choice::named(&name.to_string_lossy()),
        _ => Ok(Choice::best()),
    }
}

/// The choice of this process, made on first use: [`from_environment`], or the best if that fails.
pub fn current() -> Choice {
    static CURRENT: OnceLock<Choice> = OnceLock::new();
    *CURRENT.get_or_init(|| from_environment().unwrap_or_else(|_| Choice::best()))
}

impl fmt::Debug for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for UnavailableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{VARIABLE}={:?} is not available; this CPU can run", self.name)?;
        for (i, choice) in Choice::available().enumerate() {
            write!(f, "{} {}", if i == 0 { "" } else { "," }, choice.name())?;
        }
        Ok(())
    }
}

impl std::error::Error for UnavailableError {}

// The macro queries CPUID and, for operating system support, XGETBV.
#[cfg(target_arch = "x86_64")]
impl HaveAvx2 {
    fn detect() -> Option<Self> {
        (is_x86_feature_detected!("avx2") && is_x86_feature_detected!("bmi2")).then_some(Self(()))
    }
}

#[cfg(target_arch = "x86_64")]
impl HaveAvx512F {
    fn detect() -> Option<Self> {
        let all = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("bmi2");
        all.then_some(Self(()))
    }
}

#[cfg(target_arch = "x86_64")]
impl HaveAvx512 {
    fn detect() -> Option<Self> {
        let all = is_x86_feature_detected!("avx512ifma") && is_x86_feature_detected!("avx512vbmi2");
        HaveAvx512F::detect().filter(|_| all).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn available_choices_can_be_named_and_others_are_refused_with_a_list() {
        for choice in Choice::available() {
            assert_eq!(Choice::named(choice.name()).unwrap().name(), choice.name());
        }
        let error = Choice::named("neon9").unwrap_err().to_string();
        assert!(error.starts_with("LINERATE_AEAD=\"neon9\" is not available; this CPU can run portable, library"));
    }
}
