//! How an interface of tun(4) is made, seen to be ending, and deleted: which calls, in which order, and what their
//! answers mean. The steps and their order are those of wireguard-go (tun/tun_freebsd.go).

use std::io;

use super::super::{GONE, NAME_MAX};
use super::groups;
use crate::tun::TunError;

/// The path of the driver, which clones: each open is a new interface.
pub(crate) const PATH: &str = "/dev/tun";

/// What is asked of the kernel; in tests, of a model of it.
pub(crate) trait Calls {
    /// An open device, which is closed when it is dropped.
    type File;

    /// Opens [`PATH`], which makes an interface.
    fn open(&self) -> io::Result<Self::File>;
    /// The name of the interface as it was made (TUNGIFNAME).
    fn made_name(&self, file: &Self::File) -> io::Result<String>;
    /// The interface goes when the device is closed (TUNSTRANSIENT).
    fn make_transient(&self, file: &Self::File) -> io::Result<()>;
    /// Each packet has its family before it, so that IPv6 passes (TUNSIFHEAD).
    fn with_family_header(&self, file: &Self::File) -> io::Result<()>;
    /// Not point to point: addresses have a prefix and no destination (TUNSIFMODE).
    fn with_broadcast(&self, file: &Self::File) -> io::Result<()>;
    /// This process is the owner that ifconfig shows (TUNSIFPID).
    fn own(&self, file: &Self::File) -> io::Result<()>;
    /// No link-local address is made, and no address waits for its duplicates (SIOCSIFINFO_IN6).
    fn without_link_local(&self, name: &str) -> io::Result<()>;
    /// EEXIST if the name is taken (SIOCSIFNAME).
    fn rename(&self, name: &str, to: &str) -> io::Result<()>;
    /// [`GONE`] if there is none.
    fn index_of(&self, name: &str) -> io::Result<u32>;
    /// [`GONE`] if there is none.
    fn name_of(&self, ifindex: u32) -> io::Result<String>;
    /// Its groups into `names`, as [`groups`] reads them (SIOCGIFGROUP).
    fn groups(&self, name: &str, names: &mut [u8]) -> io::Result<()>;
    /// Deletes it once its device is closed, and waits for that (SIOCIFDESTROY).
    fn destroy(&self, name: &str) -> io::Result<()>;
}

/// An interface that this process made. It is deleted with this value.
pub(crate) struct Interface<C: Calls> {
    calls: C,
    /// `None` while it is dropped.
    file: Option<C::File>,
    ifindex: u32,
    /// It does not go with its file.
    is_lasting: bool,
    /// It can be seen whether somebody is deleting it.
    shows_end: bool,
}

impl<C: Calls> Interface<C> {
    pub(crate) fn create(calls: C, name: &str) -> Result<Self, TunError> {
        let bad = |byte: u8| byte.is_ascii_whitespace() || byte == b'/' || byte == 0;
        if name.is_empty() || name.len() > NAME_MAX || name.bytes().any(bad) {
            let sentence = format!(
                "{name:?} cannot be an interface name: choose 1 to {NAME_MAX} characters without spaces or '/'"
            );
            return Err(TunError::Refused(io::ErrorKind::InvalidInput, sentence));
        }
        let file = calls.open().map_err(refuse_open)?;
        // ENOTTY where it is unknown, in some of 14.
        let is_transient = calls.make_transient(&file).is_ok();
        // Without a name it cannot be deleted.
        let step = if is_transient { "TUNGIFNAME" } else { "TUNGIFNAME (its interface is left: `ifconfig -g tun`)" };
        let made = calls.made_name(&file).map_err(|error| failed(step, error))?;
        let ifindex = match calls.index_of(&made) {
            Ok(ifindex) => ifindex,
            Err(error) => {
                drop(file);
                if !is_transient {
                    let _ = calls.destroy(&made);
                }
                return Err(failed("finding its index", error));
            }
        };
        // From here on an error deletes it.
        let mut interface = Self { calls, file: Some(file), ifindex, is_lasting: !is_transient, shows_end: false };
        let (calls, file) = (&interface.calls, interface.file());
        calls.with_family_header(file).map_err(|error| failed("TUNSIFHEAD", error))?;
        calls.with_broadcast(file).map_err(|error| failed("TUNSIFMODE", error))?;
        calls.own(file).map_err(|error| failed("TUNSIFPID", error))?;
        // A kernel without IPv6 has none of it.
        let _ = calls.without_link_local(&made);
        calls.rename(&made, name).map_err(|error| match error.raw_os_error() {
            Some(libc::EEXIST) => TunError::Refused(
                io::ErrorKind::AlreadyExists,
                format!(
                    "interface {name} exists: choose another name or, if it is left over, delete it with \
                     `ifconfig {name} destroy`"
                ),
            ),
            _ => failed("SIOCSIFNAME", error),
        })?;
        interface.shows_end = is_alive(calls, name);
        Ok(interface)
    }

    /// The interface's name, which may change at any time.
    ///
    /// # Errors
    ///
    /// [`GONE`] once the interface was deleted, or somebody waits for its device to be closed to do so.
    pub(crate) fn name(&self) -> io::Result<String> {
        let name = self.calls.name_of(self.ifindex)?;
        let is_ending = self.shows_end && !is_alive(&self.calls, &name);
        if is_ending { Err(io::Error::from_raw_os_error(GONE)) } else { Ok(name) }
    }

    /// The interface's index, which never changes, even if it is renamed.
    pub(crate) fn ifindex(&self) -> u32 {
        self.ifindex
    }

    pub(crate) fn file(&self) -> &C::File {
        self.file.as_ref().expect("it is there until it is dropped")
    }
}

impl<C: Calls> Drop for Interface<C> {
    fn drop(&mut self) {
        // If somebody else is deleting it, that ends when the file is closed.
        let name = self.name();
        // The kernel waits for the file to be closed before it deletes the interface.
        self.file = None;
        if let (true, Ok(name)) = (self.is_lasting, name) {
            let _ = self.calls.destroy(&name);
        }
    }
}

/// Whether nobody is deleting this TUN interface. Unknown is alive.
pub(crate) fn is_alive(calls: &impl Calls, name: &str) -> bool {
    let mut names = [0; 64 * groups::NAME];
    match calls.groups(name, &mut names) {
        Ok(()) => groups::has(&names, groups::ALIVE),
        Err(error) => error.raw_os_error() != Some(GONE),
    }
}

fn refuse_open(error: io::Error) -> TunError {
    match error.raw_os_error() {
        Some(libc::ENOENT | libc::ENXIO) => TunError::Refused(
            io::ErrorKind::NotFound,
            format!(
                "{PATH} does not exist: run `kldload if_tuntap`; in a jail, on its host, with a devfs rule for tun*"
            ),
        ),
        Some(libc::EPERM | libc::EACCES) => TunError::Refused(
            io::ErrorKind::PermissionDenied,
            format!("cannot open {PATH}: permission denied; run as root"),
        ),
        _ => failed("open", error),
    }
}

fn failed(step: &'static str, error: io::Error) -> TunError {
    TunError::Failed(step, error)
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;

    const IFINDEX: u32 = 7;

    /// A kernel with at most one interface, as if_tuntap.c has it. It writes down what it is asked.
    #[derive(Default)]
    struct Kernel {
        asked: RefCell<Vec<String>>,
        /// Calls of these names fail with these errors.
        refuses: Vec<(&'static str, i32)>,
        interface: RefCell<Option<String>>,
        is_open: Cell<bool>,
        is_transient: Cell<bool>,
        /// Somebody waits for the device to be closed, to delete it.
        is_ending: Cell<bool>,
    }

    impl Kernel {
        fn refusing(call: &'static str, errno: i32) -> Self {
            Self { refuses: vec![(call, errno)], ..Self::default() }
        }

        fn ask(&self, call: &str, about: &str) -> io::Result<()> {
            self.asked.borrow_mut().push(format!("{call} {about}").trim_end().to_owned());
            match self.refuses.iter().find(|(refused, _)| *refused == call) {
                Some((_, errno)) => Err(io::Error::from_raw_os_error(*errno)),
                None => Ok(()),
            }
        }

        fn exists(&self, is: impl Fn(&str) -> bool) -> io::Result<String> {
            let there = self.interface.borrow().clone().filter(|name| is(name));
            there.ok_or_else(|| io::Error::from_raw_os_error(GONE))
        }

        /// What was asked since the last time.
        fn asked(&self) -> Vec<String> {
            self.asked.take()
        }
    }

    struct Opened<'a>(&'a Kernel);

    impl Drop for Opened<'_> {
        fn drop(&mut self) {
            let _ = self.0.ask("close", "");
            self.0.is_open.set(false);
            if self.0.is_transient.get() || self.0.is_ending.get() {
                self.0.interface.take();
            }
        }
    }

    impl<'a> Calls for &'a Kernel {
        type File = Opened<'a>;

        fn open(&self) -> io::Result<Opened<'a>> {
            self.ask("open", PATH)?;
            self.is_open.set(true);
            self.interface.replace(Some("tun3".into()));
            Ok(Opened(self))
        }

        fn made_name(&self, _: &Opened<'a>) -> io::Result<String> {
            self.ask("TUNGIFNAME", "")?;
            self.exists(|_| true)
        }

        fn make_transient(&self, _: &Opened<'a>) -> io::Result<()> {
            self.ask("TUNSTRANSIENT", "1")?;
            self.is_transient.set(true);
            Ok(())
        }

        fn with_family_header(&self, _: &Opened<'a>) -> io::Result<()> {
            self.ask("TUNSIFHEAD", "1")
        }

        fn with_broadcast(&self, _: &Opened<'a>) -> io::Result<()> {
            self.ask("TUNSIFMODE", "broadcast")
        }

        fn own(&self, _: &Opened<'a>) -> io::Result<()> {
            self.ask("TUNSIFPID", "")
        }

        fn without_link_local(&self, name: &str) -> io::Result<()> {
            self.ask("SIOCSIFINFO_IN6", name)
        }

        fn rename(&self, name: &str, to: &str) -> io::Result<()> {
            self.ask("SIOCSIFNAME", &format!("{name} {to}"))?;
            self.exists(|there| there == name)?;
            self.interface.replace(Some(to.into()));
            Ok(())
        }

        fn index_of(&self, name: &str) -> io::Result<u32> {
            self.ask("its index", name)?;
            self.exists(|there| there == name).map(|_| IFINDEX)
        }

        fn name_of(&self, ifindex: u32) -> io::Result<String> {
            self.exists(|_| ifindex == IFINDEX)
        }

        fn groups(&self, name: &str, names: &mut [u8]) -> io::Result<()> {
            self.ask("SIOCGIFGROUP", name)?;
            self.exists(|there| there == name)?;
            names[..3].copy_from_slice(b"all");
            if !self.is_ending.get() {
                names[groups::NAME..][..3].copy_from_slice(b"tun");
            }
            Ok(())
        }

        fn destroy(&self, name: &str) -> io::Result<()> {
            assert!(!self.is_open.get(), "it would wait for ever");
            self.ask("SIOCIFDESTROY", name)?;
            self.exists(|there| there == name)?;
            self.interface.take();
            Ok(())
        }
    }

    #[test]
    fn an_interface_is_made_in_these_steps_and_goes_with_its_device() {
        let kernel = Kernel::default();
        let interface = Interface::create(&kernel, "wg0").unwrap();
        let steps = [
            "open /dev/tun",
            "TUNSTRANSIENT 1",
            "TUNGIFNAME",
            "its index tun3",
            "TUNSIFHEAD 1",
            "TUNSIFMODE broadcast",
            "TUNSIFPID",
            "SIOCSIFINFO_IN6 tun3",
            "SIOCSIFNAME tun3 wg0",
            "SIOCGIFGROUP wg0",
        ];
        assert_eq!(kernel.asked(), steps);
        assert_eq!((interface.ifindex(), interface.name().unwrap()), (IFINDEX, "wg0".to_owned()));
        drop(interface);
        assert_eq!(kernel.asked(), ["SIOCGIFGROUP wg0", "SIOCGIFGROUP wg0", "close"]);
        assert_eq!(*kernel.interface.borrow(), None);
    }

    #[test]
    fn without_transient_interfaces_it_is_deleted_after_its_device_was_closed() {
        let kernel = Kernel::refusing("TUNSTRANSIENT", libc::ENOTTY);
        let interface = Interface::create(&kernel, "wg0").unwrap();
        kernel.asked();
        drop(interface);
        assert_eq!(kernel.asked(), ["SIOCGIFGROUP wg0", "close", "SIOCIFDESTROY wg0"]);
        assert_eq!(*kernel.interface.borrow(), None);
    }

    #[test]
    fn whichever_step_fails_nothing_is_left() {
        for step in ["open", "TUNGIFNAME", "its index", "TUNSIFHEAD", "TUNSIFMODE", "TUNSIFPID", "SIOCSIFNAME"] {
            for also in ["none", "TUNSTRANSIENT"] {
                let refuses = vec![(step, libc::EINVAL), (also, libc::ENOTTY)];
                let kernel = Kernel { refuses, ..Kernel::default() };
                let error = Interface::create(&kernel, "wg0").err().unwrap().to_string();
                assert!(error.contains(step) && !kernel.is_open.get(), "{error}");
                // What has no name is the user's to delete.
                let is_left = kernel.interface.borrow().is_some();
                assert_eq!(is_left, (step, also) == ("TUNGIFNAME", "TUNSTRANSIENT"), "{step}, {also}");
                assert_eq!(is_left, error.contains("`ifconfig -g tun`"), "{error}");
            }
        }
    }

    #[test]
    fn a_name_that_is_taken_is_named_with_the_remedy() {
        let kernel = Kernel::refusing("SIOCSIFNAME", libc::EEXIST);
        let error = Interface::create(&kernel, "wg0").err().unwrap();
        assert!(error.to_string().contains("`ifconfig wg0 destroy`"), "{error}");
        assert_eq!(*kernel.interface.borrow(), None);
    }

    #[test]
    fn what_cannot_be_opened_says_what_to_do() {
        for (errno, says) in [(libc::ENOENT, "kldload if_tuntap"), (libc::EACCES, "run as root")] {
            let error = Interface::create(&Kernel::refusing("open", errno), "wg0").err().unwrap();
            assert!(error.to_string().contains(says), "{error}");
        }
    }

    #[test]
    fn a_kernel_without_ipv6_has_interfaces() {
        let kernel = Kernel::refusing("SIOCSIFINFO_IN6", libc::EAFNOSUPPORT);
        assert!(Interface::create(&kernel, "wg0").is_ok());
    }

    #[test]
    fn bad_names_are_refused_before_anything_is_made() {
        let kernel = Kernel::default();
        for name in ["", "w g", "w/g", "w\0g", "0123456789abcdef"] {
            assert!(
                matches!(Interface::create(&kernel, name), Err(TunError::Refused(io::ErrorKind::InvalidInput, _))),
                "{name:?}"
            );
        }
        assert!(kernel.asked().is_empty());
        assert!(Interface::create(&kernel, "0123456789abcde").is_ok());
    }

    #[test]
    fn one_that_somebody_is_deleting_is_gone_and_left_to_them() {
        let kernel = Kernel::refusing("TUNSTRANSIENT", libc::ENOTTY);
        let interface = Interface::create(&kernel, "wg0").unwrap();
        kernel.is_ending.set(true);
        assert_eq!(interface.name().unwrap_err().raw_os_error(), Some(GONE));
        kernel.asked();
        drop(interface);
        assert_eq!(kernel.asked(), ["SIOCGIFGROUP wg0", "close"]);
    }

    #[test]
    fn one_whose_groups_cannot_be_read_is_alive() {
        let kernel = Kernel::refusing("SIOCGIFGROUP", libc::EINVAL);
        assert_eq!(Interface::create(&kernel, "wg0").unwrap().name().unwrap(), "wg0");
    }

    #[test]
    fn one_that_never_was_in_the_drivers_group_is_not_taken_for_deleted() {
        let kernel = Kernel { is_ending: Cell::new(true), ..Kernel::default() };
        assert_eq!(Interface::create(&kernel, "wg0").unwrap().name().unwrap(), "wg0");
    }
}
