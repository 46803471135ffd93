//! Name servers on hosts of every kind: each test has namespaces, an /etc and a /run of its own, where the programs
//! that manage name servers are scripts that write down what they are told.
#![cfg(target_os = "linux")]

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{PermissionsExt, lchown, symlink};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use linerate_host::dns::{self, detect, remove_stale};
use linerate_host::program::WaitLimit;
use linerate_host::spec::Dns;
use linerate_host::step::DnsManager;

#[path = "../../../tests/in_namespaces.rs"]
mod in_namespaces;
use in_namespaces::in_namespaces;

const RESOLV_CONF: &str = "/etc/resolv.conf";
const LAN: &str = "nameserver 192.168.1.1\nsearch lan\n";

#[test]
fn without_a_manager_the_file_is_changed_and_restored() {
    in_namespaces(|| {
        lone_host();
        assert_eq!(detect(), DnsManager::File);
        fs::set_permissions(RESOLV_CONF, Permissions::from_mode(0o640)).unwrap();
        set(&DnsManager::File, "lo", &corp(), true, run()).unwrap();
        assert!(has_ours(RESOLV_CONF) && !text(RESOLV_CONF).contains("\nnameserver 192"));
        assert_eq!(fs::metadata(RESOLV_CONF).unwrap().permissions().mode() & 0o777, 0o640);
        assert_eq!(text("/run/linerate/dns/resolv.conf.lo"), LAN);
        unset(&DnsManager::File, "lo", run()).unwrap();
        assert_eq!(text(RESOLV_CONF), LAN);
        assert!(!Path::new("/run/linerate/dns/resolv.conf.lo").exists());
        assert_eq!(fs::read_dir("/etc").unwrap().count(), 1, "nothing else is left in /etc");
        unset(&DnsManager::File, "lo", run()).unwrap();
    });
}

#[test]
fn a_symlink_is_followed_and_stays() {
    in_namespaces(|| {
        lone_host();
        fs::write("/run/resolv.conf", LAN).unwrap();
        fs::remove_file(RESOLV_CONF).unwrap();
        symlink("/run/resolv.conf", RESOLV_CONF).unwrap();
        set(&DnsManager::File, "lo", &corp(), true, run()).unwrap();
        assert!(Path::new(RESOLV_CONF).is_symlink() && has_ours("/run/resolv.conf"));
        unset(&DnsManager::File, "lo", run()).unwrap();
        assert_eq!(text("/run/resolv.conf"), LAN);
    });
}

#[test]
fn a_symlink_in_the_place_of_the_temporary_file_is_not_followed() {
    in_namespaces(|| {
        lone_host();
        fs::write("/run/other", "mine").unwrap();
        symlink("/run/other", "/etc/.resolv.conf.linerate").unwrap();
        set(&DnsManager::File, "lo", &corp(), true, run()).unwrap();
        assert_eq!(text("/run/other"), "mine");
        assert!(has_ours(RESOLV_CONF) && !Path::new(RESOLV_CONF).is_symlink());
        assert_eq!(fs::read_dir("/etc").unwrap().count(), 1, "nothing else is left in /etc");
    });
}

#[test]
fn a_symlink_of_another_user_is_not_followed() {
    in_namespaces(|| {
        lone_host();
        fs::create_dir("/run/theirs").unwrap();
        fs::write("/run/other", "mine").unwrap();
        symlink("/run/other", "/run/theirs/resolv.conf").unwrap();
        fs::remove_file(RESOLV_CONF).unwrap();
        symlink("../run/theirs/resolv.conf", RESOLV_CONF).unwrap();
        set(&DnsManager::File, "lo", &corp(), true, run()).unwrap();
        assert!(has_ours("/run/other"), "a link of our own is followed");
        unset(&DnsManager::File, "lo", run()).unwrap();
        fs::write("/run/other", "mine").unwrap();
        lchown("/run/theirs/resolv.conf", Some(7), Some(7)).unwrap();
        let error = set(&DnsManager::File, "lo", &corp(), true, run()).unwrap_err().to_string();
        assert_eq!(
            error,
            "cannot change /etc/resolv.conf: /etc/../run/theirs/resolv.conf is a symbolic link owned by user 7"
        );
        assert_eq!(text("/run/other"), "mine");
        remove_stale(run()).unwrap();
    });
}

#[test]
fn a_mounted_file_is_written_in_place() {
    in_namespaces(|| {
        lone_host();
        fs::write("/run/outside", LAN).unwrap();
        shell("mount --bind /run/outside /etc/resolv.conf");
        set(&DnsManager::File, "lo", &corp(), true, run()).unwrap();
        assert!(has_ours("/run/outside"));
        assert_eq!(fs::read_dir("/etc").unwrap().count(), 1, "nothing else is left in /etc");
        shell("mount -o remount,ro /etc");
        unset(&DnsManager::File, "lo", run()).unwrap();
        assert_eq!(text("/run/outside"), LAN);
    });
}

#[test]
fn a_file_that_cannot_be_written_is_an_error_in_one_sentence() {
    in_namespaces(|| {
        lone_host();
        shell("mount -o remount,ro /etc");
        let error = set(&DnsManager::File, "lo", &corp(), true, run()).unwrap_err().to_string();
        assert_eq!(error, "cannot change /etc/resolv.conf: Read-only file system (os error 30)");
        assert!(!Path::new("/run/linerate/dns/resolv.conf.lo").exists());
        assert_eq!(text(RESOLV_CONF), LAN);
    });
}

#[test]
fn a_host_without_the_file_gets_one() {
    in_namespaces(|| {
        lone_host();
        fs::remove_file(RESOLV_CONF).unwrap();
        set(&DnsManager::File, "lo", &corp(), true, run()).unwrap();
        assert!(has_ours(RESOLV_CONF));
        unset(&DnsManager::File, "lo", run()).unwrap();
        assert_eq!(text(RESOLV_CONF), "");
    });
}

#[test]
fn entries_of_an_earlier_boot_are_removed() {
    in_namespaces(|| {
        lone_host();
        set(&DnsManager::File, "lo", &corp(), true, run()).unwrap();
        remove_stale(run()).unwrap();
        assert!(has_ours(RESOLV_CONF), "a tunnel of this boot keeps its servers");
        fs::remove_dir_all(run()).unwrap();
        remove_stale(run()).unwrap();
        assert_eq!(text(RESOLV_CONF), LAN);
        fs::remove_dir_all(run()).unwrap();
        remove_stale(run()).unwrap();
        assert!(!run().exists(), "a file with nothing of ours is left alone");
    });
}

#[test]
fn tunnels_that_come_up_together_all_have_their_servers() {
    in_namespaces(|| {
        lone_host();
        let tunnels = ["wg0", "wg1", "wg2", "wg3"];
        thread::scope(|threads| {
            for name in tunnels {
                threads.spawn(move || set(&DnsManager::File, name, &corp(), false, run()).unwrap());
            }
        });
        assert_eq!(text(RESOLV_CONF).matches("nameserver 10.0.0.1\n").count(), tunnels.len());
        for name in tunnels {
            unset(&DnsManager::File, name, run()).unwrap();
        }
        assert_eq!(text(RESOLV_CONF), LAN);
    });
}

#[test]
fn systemd_resolved_gets_the_servers_of_a_full_tunnel() {
    in_namespaces(|| {
        lone_host();
        resolved_runs();
        assert_eq!(detect(), DnsManager::Resolved);
        set(&DnsManager::Resolved, "lo", &corp(), true, run()).unwrap();
        unset(&DnsManager::Resolved, "lo", run()).unwrap();
        let expected = "resolvectl [dns] [lo] [10.0.0.1] [fd00::1]\n\
                        resolvectl [domain] [lo] [~.] [corp.example] [~10.in-addr.arpa]\n\
                        resolvectl [default-route] [lo] [yes]\n\
                        resolvectl [revert] [lo]\n";
        assert_eq!(told(), expected);
    });
}

#[test]
fn systemd_resolved_gets_domains_alone_and_servers_alone() {
    in_namespaces(|| {
        lone_host();
        resolved_runs();
        set(&DnsManager::Resolved, "lo", &Dns { servers: vec![], ..corp() }, true, run()).unwrap();
        set(&DnsManager::Resolved, "lo", &Dns { search: vec![], ..corp() }, false, run()).unwrap();
        let expected = "resolvectl [dns] [lo] []\n\
                        resolvectl [domain] [lo] [corp.example] [~10.in-addr.arpa]\n\
                        resolvectl [default-route] [lo] [no]\n\
                        resolvectl [dns] [lo] [10.0.0.1] [fd00::1]\n\
                        resolvectl [domain] [lo] []\n\
                        resolvectl [default-route] [lo] [yes]\n";
        assert_eq!(told(), expected);
    });
}

#[test]
fn systemd_resolved_is_asked_again_while_it_does_not_know_the_link() {
    in_namespaces(|| {
        lone_host();
        let knows_it_the_third_time = "echo \"$*\" >>/run/told\n\
                                       [ $(wc -l </run/told) -gt 2 ] || { echo 'Link 5 not known' >&2; exit 1; }";
        program("resolvectl", knows_it_the_third_time);
        set(&DnsManager::Resolved, "lo", &corp(), true, run()).unwrap();
        assert_eq!(told().matches("dns lo").count(), 3);
    });
}

#[test]
fn a_link_that_is_gone_needs_no_revert() {
    in_namespaces(|| {
        lone_host();
        unset(&DnsManager::Resolved, "gone", run()).unwrap();
        assert_eq!(told(), "");
    });
}

#[test]
fn the_stderr_of_a_program_is_in_the_warning() {
    in_namespaces(|| {
        lone_host();
        program("resolvectl", "echo 'Link lo is loopback device.' >&2; exit 1");
        let error = set(&DnsManager::Resolved, "lo", &corp(), true, run()).unwrap_err().to_string();
        let expected = "`resolvectl dns lo 10.0.0.1 fd00::1` ended with 1: Link lo is loopback device.";
        assert_eq!(error, expected);
        fs::remove_file("/run/bin/resolvectl").unwrap();
        let error = set(&DnsManager::Resolved, "lo", &corp(), true, run()).unwrap_err().to_string();
        assert_eq!(error, "`resolvectl` is not in PATH");
    });
}

#[test]
fn resolvectl_is_used_only_if_the_file_leads_to_it() {
    in_namespaces(|| {
        lone_host();
        recorder("resolvectl");
        assert_eq!(detect(), DnsManager::File);
        resolved_runs();
        fs::remove_file(RESOLV_CONF).unwrap();
        fs::write(RESOLV_CONF, "nameserver 127.0.0.53\noptions edns0\n").unwrap();
        assert_eq!(detect(), DnsManager::Resolved);
        fs::write(RESOLV_CONF, "nameserver 127.0.0.53\nnameserver 9.9.9.9\n").unwrap();
        assert_eq!(detect(), DnsManager::File);
        symlink("resolvectl", "/run/bin/resolvconf").unwrap();
        assert_eq!(detect(), DnsManager::File, "this resolvconf is resolvectl under another name");
    });
}

#[test]
fn a_resolvconf_is_run_as_by_wg_quick() {
    in_namespaces(|| {
        lone_host();
        recorder("resolvconf");
        let manager = DnsManager::Resolvconf { prefix: String::new() };
        assert_eq!(detect(), manager);
        set(&manager, "lo", &corp(), true, run()).unwrap();
        set(&manager, "lo", &Dns { servers: vec![], ..corp() }, true, run()).unwrap();
        unset(&manager, "lo", run()).unwrap();
        let expected = "resolvconf [-a] [lo] [-m] [0] [-x]\n\
                        < nameserver 10.0.0.1\n\
                        < nameserver fd00::1\n\
                        < search corp.example\n\
                        resolvconf [-a] [lo] [-m] [0]\n\
                        < search corp.example\n\
                        resolvconf [-d] [lo] [-f]\n";
        assert_eq!(told(), expected);
    });
}

#[test]
fn debian_resolvconf_gets_the_first_literal_prefix_of_its_order() {
    in_namespaces(|| {
        lone_host();
        recorder("resolvconf");
        fs::create_dir("/etc/resolvconf").unwrap();
        let order = "# order\nlo\nlo.@(dnsmasq|unbound)\n@(br|eth)*\ntun*\ntap*\n";
        fs::write("/etc/resolvconf/interface-order", order).unwrap();
        let manager = DnsManager::Resolvconf { prefix: "tun.".into() };
        assert_eq!(detect(), manager);
        unset(&manager, "lo", run()).unwrap();
        assert_eq!(told(), "resolvconf [-d] [tun.lo] [-f]\n");
        fs::rename("/run/bin/resolvconf", "/run/openresolv").unwrap();
        symlink("/run/openresolv", "/run/bin/resolvconf").unwrap();
        assert_eq!(detect(), DnsManager::Resolvconf { prefix: String::new() });
    });
}

fn corp() -> Dns {
    Dns {
        servers: vec!["10.0.0.1".parse().unwrap(), "fd00::1".parse().unwrap()],
        search: vec!["corp.example".into(), "~10.in-addr.arpa".into()],
    }
}

fn run() -> &'static Path {
    Path::new("/run/linerate")
}

fn text(file: &str) -> String {
    fs::read_to_string(file).unwrap()
}

fn has_ours(file: &str) -> bool {
    text(file).contains("\nnameserver 10.0.0.1\nnameserver fd00::1\nsearch corp.example\n")
}

fn resolved_runs() {
    recorder("resolvectl");
    fs::create_dir_all("/run/systemd/resolve").unwrap();
    fs::write("/run/systemd/resolve/stub-resolv.conf", "nameserver 127.0.0.53\n").unwrap();
    fs::remove_file(RESOLV_CONF).unwrap();
    symlink("../run/systemd/resolve/stub-resolv.conf", RESOLV_CONF).unwrap();
}

/// A program that writes down its arguments, each in brackets, and the lines of its stdin.
fn recorder(name: &str) {
    program(name, "exec >>/run/told; printf %s \"${0##*/}\"; printf ' [%s]' \"$@\"; echo; sed 's/^/< /'");
}

fn program(name: &str, script: &str) {
    let file = Path::new("/run/bin").join(name);
    fs::write(&file, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&file, Permissions::from_mode(0o755)).unwrap();
}

/// What the recorders wrote down.
fn told() -> String {
    fs::read_to_string("/run/told").unwrap_or_default()
}

fn shell(script: &str) {
    assert!(Command::new("sh").args(["-c", script]).status().unwrap().success(), "{script}");
}

/// Makes this a host whose /etc has a resolv.conf and nothing else, and whose /run is empty.
fn lone_host() {
    // What this machine has in /usr/sbin, where resolvconf is, does not count.
    shell(
        "for place in /run /etc /usr/sbin; do mount -t tmpfs -o mode=0755 tmpfs $place || exit; done; mkdir /run/bin",
    );
    fs::write(RESOLV_CONF, LAN).unwrap();
}

fn set(manager: &DnsManager, interface: &str, dns: &Dns, exclusive: bool, run: &Path) -> io::Result<()> {
    dns::set(manager, interface, dns, exclusive, run, &MINUTE)
}

fn unset(manager: &DnsManager, interface: &str, run: &Path) -> io::Result<()> {
    dns::unset(manager, interface, run, &MINUTE)
}

const MINUTE: WaitLimit<'_> = WaitLimit { limit: Duration::from_secs(60), stop: None };
