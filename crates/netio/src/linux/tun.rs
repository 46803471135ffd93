//! /dev/net/tun: several queues, virtio headers, offloads; and descriptors that were opened elsewhere.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

use super::link::{self, TunState};
use super::namespace::NetworkNamespace;
use crate::sys::interface::{NAME_MAX, PATH, TunFile};
use crate::tun::{HEADER, PIECES_MAX, QUEUES_MAX, Tun, TunError, TunOffloads, without_header};

/// TUNSETIFF: IP packets, without the header of the TUN driver.
const BASE_FLAGS: u16 = (libc::IFF_TUN | libc::IFF_NO_PI) as u16;

/// TUNSETIFF: each packet has a virtio header.
const VNET_HDR: u16 = libc::IFF_VNET_HDR as u16;

/// TUNSETIFF: a device of several queues, or another queue of one.
const MULTI_QUEUE: u16 = libc::IFF_MULTI_QUEUE as u16;

/// TUNSETIFF: only if no interface has that name. Without it, a request for several queues would join a multi-queue
/// device of another process.
const EXCLUSIVE: u16 = libc::IFF_TUN_EXCL as u16;

/// A TUN interface of the kernel. It is deleted with this value, unless it is persistent.
pub struct TunDevice {
    /// One file per queue.
    queues: Vec<TunFile>,
    /// `None` if it was handed over.
    ifindex: Option<u32>,
    /// It was made in another network namespace.
    elsewhere: bool,
    offloads: TunOffloads,
}

impl TunDevice {
    /// Creates the interface `name` with up to `queues` queues, at most [`QUEUES_MAX`] and as many as the
    /// kernel allows; or attaches to a persistent TUN interface of that name, with one. A device in use by
    /// another process is never shared. It has those of the offloads `wanted` that this kernel supports.
    pub fn create(name: &str, queues: usize, wanted: TunOffloads) -> Result<Self, TunError> {
        check_name(name)?;
        let file = TunFile::open().map_err(refuse_open)?;
        let flags = if wanted.vnet_hdr { BASE_FLAGS | VNET_HDR } else { BASE_FLAGS };
        // If this fails for another reason than the number of queues, the attempt with one queue reports it.
        if queues > 1 && file.attach(name, flags | MULTI_QUEUE | EXCLUSIVE).is_ok() {
            let owner = set_owner(&file).map_err(|error| failed("TUNSETOWNER", error))?;
            let mut device = Self::untouched(file, name, owner, wanted)?;
            device.add_queues(queues);
            return Ok(device);
        }
        let attached = match file.attach(name, flags) {
            // EINVAL means "unknown flag" or "another kind of device"; the latter fails again.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => file.attach(name, BASE_FLAGS),
            attached => attached,
        };
        attached.map_err(|error| refuse_attach(name, error))?;
        Self::attached(file, wanted)
    }

    /// As [`create`](Self::create), in another network namespace than this thread's, where outer sockets are.
    pub fn create_in(
        network: &NetworkNamespace,
        name: &str,
        queues: usize,
        wanted: TunOffloads,
    ) -> Result<Self, TunError> {
        let created = network.inside(|| Ok(Self::create(name, queues, wanted)));
        let device = created.map_err(|error| failed("setns", error))??;
        Ok(Self { elsewhere: true, ..device })
    }

    /// Takes over the TUN interface behind a descriptor that was opened elsewhere (`WG_TUN_FD`)
    /// and makes it non-blocking. It has those of `wanted` that this kernel supports; whether there is a
    /// virtio header was decided by whoever opened it, and must match `wanted`.
    ///
    /// It must have been created with IFF_NO_PI. That cannot be checked: TUNGETIFF reports in the same bit whether a
    /// socket filter is attached (IFF_NOFILTER).
    pub fn from_fd(fd: OwnedFd, wanted: TunOffloads) -> Result<Self, TunError> {
        Self::attached(taken_over(fd)?, wanted)
    }

    /// Takes over the TUN interface behind the descriptor of an app that made it and looks after it, as Android's
    /// VpnService does, and makes it non-blocking. Neither the interface nor the network is asked for anything: an app
    /// may have no netlink. So it has no index, and packets must have no virtio header.
    pub fn handed_over(fd: OwnedFd) -> Result<Self, TunError> {
        let file = taken_over(fd)?;
        if flags_of(&file)?.1 & VNET_HDR != 0 {
            return Err(refuse_inherited("its packets have virtio headers"));
        }
        let offloads = TunOffloads { vnet_hdr: false, tso: false, uso: false };
        Ok(Self { queues: vec![file], ifindex: None, elsewhere: false, offloads })
    }

    /// Goes over to another interface, which was [handed over](Self::handed_over), too. Whoever waits for the queue has
    /// to wait anew.
    ///
    /// # Errors
    /// Those of [`handed_over`](Self::handed_over); then it is the device that it was.
    pub fn replace(&self, fd: OwnedFd) -> Result<(), TunError> {
        let other = Self::handed_over(fd)?;
        match (self.ifindex, &self.queues[..], &other.queues[..]) {
            (None, [file], [other]) => file.replace(other).map_err(|error| failed("dup3", error)),
            _ => Err(refuse_inherited("the device that it should replace was not handed over")),
        }
    }

    /// The interface's name, which may change at any time.
    ///
    /// # Errors
    ///
    /// EBADFD once the interface was deleted.
    pub fn name(&self) -> io::Result<String> {
        Ok(self.queues[0].interface()?.0)
    }

    /// The network namespace of the interface, which may have been moved since it was created.
    ///
    /// # Errors
    ///
    /// EBADFD when it is gone; EINVAL before Linux 5.2; EPERM without CAP_NET_ADMIN there.
    pub fn network(&self) -> io::Result<NetworkNamespace> {
        NetworkNamespace::from_fd(self.queues[0].namespace()?)
    }

    /// Whether it was [made in another network namespace](Self::create_in).
    pub fn is_elsewhere(&self) -> bool {
        self.elsewhere
    }

    /// The interface's index, which never changes, even if it is renamed. `None` if the device was
    /// [handed over](Self::handed_over): whoever did that tells of changes.
    pub fn ifindex(&self) -> Option<u32> {
        self.ifindex
    }

    /// The descriptor to wait for: readable when the queue may have a packet.
    pub fn queue_fd(&self, queue: usize) -> BorrowedFd<'_> {
        self.queues[queue].as_fd()
    }

    fn attached(file: TunFile, wanted: TunOffloads) -> Result<Self, TunError> {
        let (name, flags) = flags_of(&file)?;
        // An inherited descriptor may use the longer header with num_buffers.
        let vnet_hdr = flags & VNET_HDR != 0;
        if vnet_hdr && !wanted.vnet_hdr {
            return Err(refuse_inherited("its packets have virtio headers, but LINERATE_OFFLOADS disables vnet_hdr"));
        }
        if vnet_hdr {
            file.set_header_len(HEADER as i32).map_err(|error| failed("TUNSETVNETHDRSZ", error))?;
        }
        let (tso, uso) = if vnet_hdr { enable_offloads(&file, wanted) } else { (false, false) };
        let ifindex = link::index_of(&name).map_err(|error| failed("finding its index", error))?;
        let offloads = TunOffloads { vnet_hdr, tso, uso };
        Ok(Self { queues: vec![file], ifindex: Some(ifindex), elsewhere: false, offloads })
    }

    /// The interface that `file` made with several queues, and that `owner` has since. Until then everybody could attach to
    /// it, change it, and be gone again, so it is deleted unless it is as it was made: nobody is attached, nobody may
    /// attach but its owner, and it ends with its file. What cannot be read is set again; the flags of TUNSETIFF stay
    /// as they are while a file is attached (tun.c).
    fn untouched(file: TunFile, name: &str, owner: u32, wanted: TunOffloads) -> Result<Self, TunError> {
        let (found, _) = flags_of(&file)?;
        let ifindex = link::index_of(&found).map_err(|error| failed("finding its index", error))?;
        let state = link::tun_state(ifindex).map_err(|error| failed("reading its state", error))?;
        let made = TunState { kind: libc::ARPHRD_NONE, owner: Some(owner), group: None, persistent: false, files: 1 };
        if state.is_none_or(|state| state == made) {
            file.reset();
            return Self::attached(file, wanted);
        }
        // Another's queue, or that it is persistent, would keep it.
        link::delete(ifindex).map_err(|error| failed("deleting it", error))?;
        Err(TunError::Refused(
            io::ErrorKind::ResourceBusy,
            format!(
                "another process attached to interface {name} while it was created: end that process, and try again"
            ),
        ))
    }

    /// Adds queues until there are `queues`, or as many as possible. The header length and the offloads apply to the
    /// whole device, whichever queue set them (tun.c).
    fn add_queues(&mut self, queues: usize) {
        while self.queues.len() < queues.min(QUEUES_MAX) {
            let Ok(file) = self.another_queue() else { return };
            self.queues.push(file);
        }
    }

    fn another_queue(&self) -> io::Result<TunFile> {
        let file = TunFile::open()?;
        let vnet_hdr = if self.offloads.vnet_hdr { VNET_HDR } else { 0 };
        file.attach(&self.name()?, BASE_FLAGS | vnet_hdr | MULTI_QUEUE)?;
        // If ours was renamed meanwhile, the name may belong to another or a new device.
        let (name, _) = file.interface()?;
        if Some(link::index_of(&name)?) != self.ifindex {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(file)
    }
}

impl Tun for TunDevice {
    fn queues(&self) -> usize {
        self.queues.len()
    }

    fn read(&self, queue: usize, buf: &mut [u8]) -> io::Result<usize> {
        let file = &self.queues[queue];
        if self.offloads.vnet_hdr {
            return Ok(rustix::io::read(file, buf)?);
        }
        let Some((header, packet)) = buf.split_first_chunk_mut::<HEADER>() else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        *header = [0; HEADER];
        Ok(HEADER + rustix::io::read(file, packet)?)
    }

    fn write(&self, queue: usize, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        let file = &self.queues[queue];
        if self.offloads.vnet_hdr {
            return Ok(rustix::io::writev(file, pieces)?);
        }
        let mut stripped = [IoSlice::new(&[]); PIECES_MAX];
        let packet = without_header(pieces, &mut stripped)?;
        Ok(HEADER + rustix::io::writev(file, packet)?)
    }

    fn offloads(&self) -> TunOffloads {
        self.offloads
    }
}

/// Without an owner, a device of several queues gives one to everybody who asks and may open the driver, which are all users
/// as a rule, and with it a share of the packets (tun_not_capable in drivers/net/tun.c). Its owner is root, who may in any
/// case, or in a user namespace without root this user. Returns the owner.
fn set_owner(file: &TunFile) -> io::Result<u32> {
    let set = |user| file.set_owner(user).map(|()| user);
    set(0).or_else(|_| set(rustix::process::geteuid().as_raw()))
}

/// As the kernel's dev_valid_name; also no '%', which TUNSETIFF would take as a pattern.
fn check_name(name: &str) -> Result<(), TunError> {
    let bad = |byte: u8| byte.is_ascii_whitespace() || matches!(byte, b'/' | b':' | b'%' | 0 | 11);
    let valid = !name.is_empty() && name.len() <= NAME_MAX && name != "." && name != ".." && !name.bytes().any(bad);
    let sentence = || {
        format!(
            "{name:?} cannot be an interface name: choose 1 to {NAME_MAX} characters without \
             spaces, '/', ':' or '%'"
        )
    };
    if valid { Ok(()) } else { Err(TunError::Refused(io::ErrorKind::InvalidInput, sentence())) }
}

fn refuse_open(error: io::Error) -> TunError {
    match error.raw_os_error() {
        // ENODEV and ENXIO: the node is there and its module is not.
        Some(libc::ENOENT | libc::ENODEV | libc::ENXIO) => TunError::Refused(
            io::ErrorKind::NotFound,
            format!("{PATH} does not exist: run `modprobe tun`, or in a container pass --device {PATH}"),
        ),
        Some(libc::EPERM | libc::EACCES) => TunError::Refused(
            io::ErrorKind::PermissionDenied,
            format!("cannot open {PATH}: permission denied; run as root, or in a container pass --device {PATH}"),
        ),
        _ => failed("open", error),
    }
}

fn refuse_attach(name: &str, error: io::Error) -> TunError {
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => TunError::Refused(
            io::ErrorKind::PermissionDenied,
            format!("cannot create interface {name}: permission denied; run as root or grant CAP_NET_ADMIN"),
        ),
        Some(libc::EBUSY) => TunError::Refused(
            io::ErrorKind::ResourceBusy,
            format!("interface {name} is in use by another process: stop that process or choose another name"),
        ),
        Some(libc::EINVAL | libc::EEXIST) if link::index_of(name).is_ok() => TunError::Refused(
            io::ErrorKind::AlreadyExists,
            format!(
                "interface {name} exists and is not a single-queue TUN device, or is in use by another \
                 process: choose another name or delete it with `ip link delete {name}`"
            ),
        ),
        _ => failed("TUNSETIFF", error),
    }
}

/// A descriptor that was opened elsewhere is not usable.
fn refuse_inherited(reason: &str) -> TunError {
    let sentence =
        format!("the inherited descriptor is not usable: {reason}: pass one from TUNSETIFF with IFF_TUN and IFF_NO_PI");
    TunError::Refused(io::ErrorKind::InvalidInput, sentence)
}

fn failed(step: &'static str, error: io::Error) -> TunError {
    TunError::Failed(step, error)
}

/// The file behind a descriptor that was opened elsewhere, made non-blocking.
fn taken_over(fd: OwnedFd) -> Result<TunFile, TunError> {
    let file = TunFile::verify(fd).map_err(|_| refuse_inherited("it is not an open TUN device"))?;
    // Android lets apps use few ioctls on a TUN device; FIONBIO is in doubt.
    fcntl_getfl(&file)
        .and_then(|flags| fcntl_setfl(&file, flags | OFlags::NONBLOCK))
        .map_err(|error| failed("F_SETFL", error.into()))?;
    Ok(file)
}

/// The name and the flags of the interface that a file is attached to, which carries IP packets.
fn flags_of(file: &TunFile) -> Result<(String, u16), TunError> {
    let (name, flags) = file.interface().map_err(|error| match error.raw_os_error() {
        Some(libc::EBADFD) => refuse_inherited("it is not attached to an interface"),
        _ => failed("TUNGETIFF", error),
    })?;
    if i32::from(flags) & libc::IFF_TUN == 0 {
        return Err(refuse_inherited("its interface carries Ethernet frames (tap), not packets"));
    }
    Ok((name, flags))
}

/// Requests every offload that is wanted, then ever fewer; returns whether (TSO, USO) were
/// granted. A kernel refuses a set that has a bit it does not know.
fn enable_offloads(file: &TunFile, wanted: TunOffloads) -> (bool, bool) {
    let tso = libc::TUN_F_TSO4 | libc::TUN_F_TSO6;
    let ecn = tso | libc::TUN_F_TSO_ECN;
    let uso = libc::TUN_F_USO4 | libc::TUN_F_USO6;
    let sets = [(ecn | uso, (true, true)), (ecn, (true, false)), (tso, (true, false)), (uso, (false, true))];
    for (set, granted) in sets {
        let is_wanted = (wanted.tso || !granted.0) && (wanted.uso || !granted.1);
        if is_wanted && file.set_offload(libc::TUN_F_CSUM | set).is_ok() {
            return granted;
        }
    }
    // An inherited device may have some set; if clearing all flags fails, give up.
    let _ = file.set_offload(0);
    (false, false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::in_namespace::{in_namespace, run, sysctl};
    use std::net::UdpSocket;

    #[test]
    fn names_that_the_kernel_would_not_take_are_refused_before_asking() {
        for name in ["", ".", "..", "a b", "a/b", "a:b", "wg%d", "a\0b", "sixteen-letters-"] {
            assert!(matches!(check_name(name), Err(TunError::Refused(io::ErrorKind::InvalidInput, _))), "{name:?}");
        }
        for name in ["wg0", "fifteen-letters", "wg-ü"] {
            assert!(check_name(name).is_ok(), "{name:?}");
        }
    }

    #[test]
    fn a_refusal_says_what_to_do() {
        let refused = |error: fn(io::Error) -> TunError, errno| error(io::Error::from_raw_os_error(errno));
        let busy = io::Error::from(refused(|error| refuse_attach("wg0", error), libc::EBUSY));
        assert_eq!(busy.kind(), io::ErrorKind::ResourceBusy);
        assert!(busy.to_string().starts_with("interface wg0 is in use by another process"), "{busy}");
        assert!(refused(refuse_open, libc::ENODEV).to_string().contains("modprobe tun"));
    }

    #[test]
    fn a_device_opened_elsewhere_works_whatever_its_header() {
        let inherited: fn(OwnedFd) -> Result<TunDevice, TunError> = |fd| TunDevice::from_fd(fd, TunOffloads::ALL);
        in_namespace(move || {
            for (name, flag, take) in [
                ("bare0", 0, inherited),
                ("header0", libc::IFF_VNET_HDR, inherited),
                ("app0", 0, TunDevice::handed_over),
            ] {
                let tun = take(opened_elsewhere(name, libc::IFF_TUN | libc::IFF_NO_PI | flag)).unwrap();
                assert_eq!(tun.offloads().vnet_hdr, flag != 0);
                assert_eq!(tun.offloads().tso, flag != 0);
                assert_eq!(tun.ifindex(), (name != "app0").then(|| link::index_of(name).unwrap()));
                sysctl(&format!("net/ipv6/conf/{name}/disable_ipv6"), "1");
                run(&format!("ip link set {name} up"));
                run(&format!("ip address add 10.9.0.1/24 dev {name}"));
                let socket = UdpSocket::bind("10.9.0.1:5000").unwrap();
                socket.send_to(b"hello", "10.9.0.2:5000").unwrap();
                let mut buf = [0xff; 200];
                let len = tun.read(0, &mut buf).unwrap();
                assert_eq!(len, HEADER + 28 + 5);
                // What comes with the addresses swapped comes from the other side.
                buf[HEADER + 12..HEADER + 20].rotate_left(4);
                let pieces = [IoSlice::new(&buf[..15]), IoSlice::new(&buf[15..len])];
                assert_eq!(tun.write(0, &pieces).unwrap(), len);
                let mut answer = [0; 100];
                assert_eq!(socket.recv(&mut answer).unwrap(), 5);
                assert_eq!(&answer[..5], b"hello");
            }
        });
    }

    #[test]
    fn a_descriptor_that_is_no_tun_interface_is_refused() {
        in_namespace(|| {
            let null: OwnedFd = std::fs::File::open("/dev/null").unwrap().into();
            let unattached = TunFile::open().unwrap().as_fd().try_clone_to_owned().unwrap();
            let tap = opened_elsewhere("tap0", libc::IFF_TAP | libc::IFF_NO_PI);
            let header = opened_elsewhere("header0", libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_VNET_HDR);
            let same = header.try_clone().unwrap();
            let bare = TunDevice::from_fd(same, TunOffloads { vnet_hdr: false, ..TunOffloads::ALL }).err();
            assert!(
                matches!(bare, Some(TunError::Refused(io::ErrorKind::InvalidInput, _))),
                "with headers that are not wanted: {bare:?}"
            );
            let app = TunDevice::handed_over(header).err();
            assert!(
                matches!(app, Some(TunError::Refused(io::ErrorKind::InvalidInput, _))),
                "with headers, by an app: {app:?}"
            );
            for (what, fd) in
                [("another driver's", null), ("without an interface", unattached), ("of Ethernet frames", tap)]
            {
                let same = fd.try_clone().unwrap();
                for refusal in [TunDevice::from_fd(fd, TunOffloads::ALL).err(), TunDevice::handed_over(same).err()] {
                    assert!(
                        matches!(refusal, Some(TunError::Refused(io::ErrorKind::InvalidInput, _))),
                        "{what}: {refusal:?}"
                    );
                }
            }
        });
    }

    #[test]
    fn a_device_that_somebody_else_has_attached_to_is_deleted_or_as_it_was_made() {
        const FLAGS: u16 = BASE_FLAGS | VNET_HDR | MULTI_QUEUE;
        type Change<'a> = &'a (dyn Fn(&TunFile) + Send + Sync);
        let changes: [(&str, u16, Change<'_>, bool); 8] = [
            ("nothing", FLAGS, &|_| {}, true),
            ("another owner", FLAGS, &|file| file.set_owner(1).unwrap(), false),
            ("a group", FLAGS, &|file| file.set_group(0), false),
            ("persistent", FLAGS, &TunFile::set_persistent, false),
            ("of another kind", FLAGS, &|file| file.set_kind(libc::ARPHRD_ETHER), false),
            ("no virtio header", FLAGS & !VNET_HDR, &|_| {}, true),
            ("with a header of the driver", FLAGS & !(libc::IFF_NO_PI as u16), &|_| {}, true),
            ("longer virtio header", FLAGS, &|file| file.set_header_len(12).unwrap(), true),
        ];
        in_namespace(move || {
            let create = |flags, change: Change<'_>, stays: bool| {
                let ours = TunFile::open().unwrap();
                ours.attach("many0", FLAGS | EXCLUSIVE).unwrap();
                let owner = set_owner(&ours).unwrap();
                let theirs = TunFile::open().unwrap();
                theirs.attach("many0", flags).unwrap();
                change(&theirs);
                let theirs = stays.then_some(theirs);
                let made = TunDevice::untouched(ours, "many0", owner, TunOffloads::ALL);
                drop(theirs);
                made
            };
            for (what, flags, change, is_mended) in changes {
                for (stays, is_taken) in [(true, false), (false, is_mended)] {
                    match create(flags, change, stays) {
                        Ok(device) => assert!(is_taken && device.offloads().tso, "{what}, and stays: {stays}"),
                        Err(TunError::Refused(io::ErrorKind::ResourceBusy, _)) if !is_taken => {}
                        Err(error) => panic!("{what}, and stays: {stays}: {error}"),
                    }
                    assert!(link::index_of("many0").is_err(), "{what}, and stays: {stays}: it is still there");
                }
            }
        });
    }

    #[test]
    fn what_another_file_set_and_nobody_can_read_is_taken_back() {
        const FLAGS: u16 = BASE_FLAGS | VNET_HDR | MULTI_QUEUE;
        in_namespace(|| {
            let ours = TunFile::open().unwrap();
            ours.attach("many0", FLAGS | EXCLUSIVE).unwrap();
            let owner = set_owner(&ours).unwrap();
            let theirs = TunFile::open().unwrap();
            theirs.attach("many0", FLAGS).unwrap();
            theirs.take_carrier();
            theirs.set_send_buffer(1);
            drop(theirs);
            let device = TunDevice::untouched(ours, "many0", owner, TunOffloads::ALL).unwrap();
            run("ip link set many0 up");
            let shown = std::process::Command::new("ip").args(["-o", "link", "show", "many0"]).output().unwrap().stdout;
            assert!(String::from_utf8_lossy(&shown).contains("LOWER_UP"), "{}", String::from_utf8_lossy(&shown));
            assert_eq!(device.queues[0].send_buffer(), i32::MAX);
        });
    }

    fn opened_elsewhere(name: &str, flags: i32) -> OwnedFd {
        let file = TunFile::open().unwrap();
        file.attach(name, flags as u16).unwrap();
        file.as_fd().try_clone_to_owned().unwrap()
    }
}
