//! `genkey`, `genpsk`, `pubkey`: as `wg` does them, except that a failed write is a failure.

use std::io::Read;
use std::process::ExitCode;

use linerate_control::keys::{BASE64_LENGTH, PublicKey, SecretKey};
use linerate_control::wg_config::values;
use linerate_netio::random;
use linerate_protocol::PrivateKey;
use rustix::fs::{FileType, Mode, fstat};
use zeroize::Zeroizing;

use linerate_cli::{eprint_line, print};

/// Prints a new private key.
pub fn genkey() -> Result<ExitCode, String> {
    print_secret(private_key().as_bytes())
}

/// Prints a new preshared key.
pub fn genpsk() -> Result<ExitCode, String> {
    let mut key = Zeroizing::new([0; 32]);
    random::fill(&mut *key);
    print_secret(&key)
}

/// Prints the public key of the private one on standard input.
pub fn pubkey() -> Result<ExitCode, String> {
    let mut text = Zeroizing::new(Vec::with_capacity(1 << 16));
    // Anything longer is not a key.
    let mut input = std::io::stdin().lock().take(1 << 16);
    input.read_to_end(&mut text).map_err(|error| format!("cannot read standard input: {error}"))?;
    let public = public_key(&read_key(&text)?);
    print(format!("{public}\n").as_bytes())
}

/// A new private key, clamped.
pub fn private_key() -> PrivateKey {
    let mut bytes = Zeroizing::new([0; 32]);
    random::fill(&mut *bytes);
    clamped(&bytes)
}

/// The public key of any 32 bytes, clamped first as everywhere (RFC 7748, section 5).
pub fn public_key(secret: &SecretKey) -> PublicKey {
    PublicKey(clamped(secret.as_bytes()).public_key().0)
}

fn clamped(bytes: &[u8; 32]) -> PrivateKey {
    let mut bytes = Zeroizing::new(*bytes);
    bytes[31] |= 64;
    PrivateKey::new(&bytes).expect("a key with a bit set is not all zero")
}

/// The key that `text` consists of, apart from trailing white space and NULs.
fn read_key(text: &[u8]) -> Result<SecretKey, String> {
    let invalid = || "Key is not the correct length or format".to_owned();
    let (key, rest) = text.split_at_checked(BASE64_LENGTH).ok_or_else(invalid)?;
    let is_blank = |byte: &u8| values::is_space(*byte) || *byte == 0;
    if !rest.iter().all(is_blank) {
        return Err("Trailing characters found after key".into());
    }
    SecretKey::from_base64(key).ok_or_else(invalid)
}

fn print_secret(key: &[u8; 32]) -> Result<ExitCode, String> {
    warn_if_world_accessible();
    let text = SecretKey::from_bytes(key).to_base64();
    let mut line = Zeroizing::new(Vec::with_capacity(BASE64_LENGTH + 1));
    line.extend_from_slice(text.as_bytes());
    line.push(b'\n');
    print(&line)
}

/// Warns before a key is printed into a file that everybody may read.
pub fn warn_if_world_accessible() {
    if is_world_accessible_file() {
        eprint_line("Warning: writing to world accessible file.");
        eprint_line("Consider setting the umask to 077 and trying again.");
    }
}

fn is_world_accessible_file() -> bool {
    fstat(rustix::stdio::stdout()).is_ok_and(|stat| {
        let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        is_file && Mode::from_raw_mode(stat.st_mode).intersects(Mode::RWXO)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRIVATE: &[u8; 44] = b"yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=";

    #[test]
    fn the_public_key_is_the_one_that_wg_pubkey_prints() {
        let public = |text: &[u8]| public_key(&read_key(text).unwrap()).to_string();
        assert_eq!(public(PRIVATE), "HIgo9xNzJMWLKASShiTqIybxZ0U3wGLiUeJ1PKf8ykw=");
        let zero = SecretKey::ZERO.to_base64();
        assert_eq!(public(zero.as_bytes()), "L+V9o0fNYkMVKNqsX7spBzD/9oSvxM/C7ZCZX1jLO3Q=");
    }

    #[test]
    fn white_space_and_nuls_may_follow_a_key_and_nothing_else() {
        let with = |rest: &[u8]| read_key(&[PRIVATE, rest].concat()).err();
        assert_eq!(with(b""), None);
        assert_eq!(with(b"\n \t\r\x0b\x0c\0\n"), None);
        assert_eq!(with(b"\n=").as_deref(), Some("Trailing characters found after key"));
        assert_eq!(with(b"=").as_deref(), Some("Trailing characters found after key"));
        for short in [&b""[..], &PRIVATE[..43], b" yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk"] {
            let refused = read_key(short).err();
            assert_eq!(refused.as_deref(), Some("Key is not the correct length or format"));
        }
    }

    #[test]
    fn a_new_private_key_is_clamped_and_new() {
        let (one, other) = (private_key(), private_key());
        assert!(one != other);
        let bytes = one.as_bytes();
        assert_eq!((bytes[0] & 7, bytes[31] & 0xc0), (0, 0x40));
    }
}
