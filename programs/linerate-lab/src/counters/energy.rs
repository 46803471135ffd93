//! Energy that the processor packages used, by the kernel's powercap zones (Intel's RAPL, which AMD's processors
//! have as well).

use std::fs;
use std::path::{Path, PathBuf};

/// Where the kernel shows its zones (Documentation/power/powercap/powercap.rst).
const POWERCAP: &str = "/sys/class/powercap";

/// The energy counters at one time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Energy {
    place: PathBuf,
    /// In the order of their names, one for each package.
    zones: Vec<Zone>,
    /// `intel-rapl:0 (package-0)`, several with commas between.
    name: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Zone {
    folder: String,
    microjoules: u64,
    /// The value at which the counter wraps.
    range: u64,
}

impl Energy {
    /// This machine's counters as they stand; none where it has no counter or does not let this user read it
    /// (kernels since 5.10 let only root).
    #[must_use]
    pub fn find() -> Option<Self> {
        Self::read(Path::new(POWERCAP))
    }

    /// The counters below another folder than `/sys/class/powercap`.
    #[must_use]
    pub fn read(place: &Path) -> Option<Self> {
        let folders = fs::read_dir(place).ok()?.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
        // Zones have one colon, their parts (core, dram), which they include, have two.
        let mut folders: Vec<String> = folders.filter(|folder| folder.matches(':').count() == 1).collect();
        folders.sort_unstable();
        let packages = folders.into_iter().filter_map(|folder| Zone::read(place, folder));
        let (names, zones): (Vec<String>, Vec<Zone>) = packages.unzip();
        (!zones.is_empty()).then(|| Self { place: place.into(), zones, name: names.join(", ") })
    }

    /// Where the joules come from: `intel-rapl:0 (package-0)`.
    #[must_use]
    pub fn zone(&self) -> &str {
        &self.name
    }

    /// The same counters as they stand now; none when one of them is gone.
    #[must_use]
    pub fn again(&self) -> Option<Self> {
        Self::read(&self.place).filter(|now| now.name == self.name)
    }

    /// Joules used since `earlier`, before any counter wraps a second time. That is the whole packages' energy,
    /// whichever process used it.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> f64 {
        let used = self.zones.iter().zip(&earlier.zones).map(|(now, before)| now.since(before));
        used.sum::<u64>() as f64 / 1e6
    }
}

impl Zone {
    /// A package's zone and its name; nothing for another zone. The zone of the whole platform (`psys`) includes
    /// the packages.
    fn read(place: &Path, folder: String) -> Option<(String, Self)> {
        let read = |file: &str| fs::read_to_string(place.join(&folder).join(file)).ok();
        let number = |file: &str| read(file)?.trim().parse().ok();
        let name = read("name")?;
        let name = name.trim();
        if !name.starts_with("package") {
            return None;
        }
        let (microjoules, range) = (number("energy_uj")?, number("max_energy_range_uj")?);
        Some((format!("{folder} ({name})"), Self { folder, microjoules, range }))
    }

    /// Microjoules since `earlier`.
    fn since(&self, earlier: &Self) -> u64 {
        let wrapped = if self.microjoules < earlier.microjoules { self.range } else { 0 };
        (self.microjoules + wrapped).saturating_sub(earlier.microjoules)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder of zones that disappears with the test.
    struct Zones(PathBuf);

    impl Zones {
        fn new(test: &str) -> Self {
            let place = std::env::temp_dir().join(format!("linerate-powercap-{test}-{}", std::process::id()));
            fs::create_dir_all(&place).unwrap();
            Self(place)
        }

        fn set(&self, folder: &str, name: &str, microjoules: u64) {
            let zone = self.0.join(folder);
            fs::create_dir_all(&zone).unwrap();
            let write = |file: &str, text: String| fs::write(zone.join(file), text + "\n").unwrap();
            write("name", name.into());
            write("energy_uj", microjoules.to_string());
            write("max_energy_range_uj", "262143328850".into());
        }
    }

    impl Drop for Zones {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn packages_are_added_up_and_their_parts_are_not() {
        let zones = Zones::new("packages");
        for (folder, name) in [
            ("intel-rapl:0", "package-0"),
            ("intel-rapl:1", "package-1"),
            ("intel-rapl:0:0", "core"),
            ("intel-rapl:2", "psys"),
        ] {
            zones.set(folder, name, 1_000_000);
        }
        fs::create_dir_all(zones.0.join("intel-rapl")).unwrap();
        let before = Energy::read(&zones.0).unwrap();
        assert_eq!(before.zone(), "intel-rapl:0 (package-0), intel-rapl:1 (package-1)");
        zones.set("intel-rapl:0", "package-0", 3_500_000);
        zones.set("intel-rapl:1", "package-1", 2_000_000);
        zones.set("intel-rapl:0:0", "core", 9_000_000);
        assert_eq!(before.again().unwrap().since(&before), 3.5);
    }

    #[test]
    fn a_counter_that_began_again_goes_on() {
        let zones = Zones::new("wrap");
        zones.set("intel-rapl:0", "package-0", 262_143_328_850 - 250_000);
        let before = Energy::read(&zones.0).unwrap();
        zones.set("intel-rapl:0", "package-0", 750_000);
        assert_eq!(before.again().unwrap().since(&before), 1.0);
    }

    #[test]
    fn a_machine_without_counters_has_none() {
        let zones = Zones::new("none");
        assert_eq!(Energy::read(&zones.0), None);
        assert_eq!(Energy::read(&zones.0.join("nothing")), None);
        zones.set("intel-rapl:0", "package-0", 1);
        fs::remove_file(zones.0.join("intel-rapl:0/energy_uj")).unwrap();
        assert_eq!(Energy::read(&zones.0), None, "one that cannot be read");
    }
}
