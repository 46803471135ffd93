//! The tool as its users meet it: arguments, exit codes, what is written where. Nothing here
//! needs root; tunnels are in `tests/netns`.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

const LINERATE: &str = env!("CARGO_BIN_EXE_linerate");

#[test]
fn genkey_and_pubkey_make_a_pair_of_keys() {
    let private = run(&["genkey"], "");
    assert!(private.status.success() && private.stderr.is_empty());
    let public = run(&["pubkey"], &stdout(&private));
    assert!(public.status.success());
    assert_eq!((private.stdout.len(), public.stdout.len()), (45, 45));
    assert_ne!(private.stdout, public.stdout);
    assert_ne!(stdout(&run(&["genpsk"], "")), stdout(&run(&["genpsk"], "")));
}

#[test]
fn a_bad_private_key_is_refused_in_the_words_of_wg() {
    let refused = run(&["pubkey"], "not a key\n");
    assert_eq!(refused.status.code(), Some(1));
    assert_eq!(stderr(&refused), "linerate: Key is not the correct length or format\n");
}

#[test]
fn genkey_warns_of_a_file_that_everyone_can_read_and_only_of_that() {
    let file = std::env::temp_dir().join(format!("linerate-key-{}", std::process::id()));
    for (mode, warning) in [
        (0o600, ""),
        (0o604, "Warning: writing to world accessible file.\nConsider setting the umask to 077 and trying again.\n"),
    ] {
        let out = File::create(&file).unwrap();
        out.set_permissions(fs::Permissions::from_mode(mode)).unwrap();
        let done = Command::new(LINERATE).arg("genkey").stdout(out).stderr(Stdio::piped()).output().unwrap();
        assert!(done.status.success());
        assert_eq!(stderr(&done), warning);
        assert_eq!(fs::read(&file).unwrap().len(), 45);
    }
    fs::remove_file(&file).unwrap();
}

#[test]
fn a_key_that_could_not_be_written_is_a_failure() {
    let full = File::options().write(true).open("/dev/full").unwrap();
    let failed = Command::new(LINERATE).arg("genkey").stdout(full).stderr(Stdio::piped()).output().unwrap();
    assert_eq!(failed.status.code(), Some(1));
    assert!(stderr(&failed).starts_with("linerate: cannot write to standard output: "));
}

#[test]
fn help_and_version_go_to_standard_output_and_succeed() {
    let asked: [(&[&str], &str); 7] = [
        (&[], "linerate genkey"),
        (&["--help"], "linerate demo"),
        (&["help"], "EXAMPLES"),
        (&["help", "show"], "WG_HIDE_KEYS"),
        (&["show", "--help"], "WG_COLOR_MODE"),
        (&["version"], concat!("linerate ", env!("CARGO_PKG_VERSION"))),
        (&["--version"], concat!("linerate ", env!("CARGO_PKG_VERSION"))),
    ];
    for (arguments, expected) in asked {
        let said = run(arguments, "");
        assert!(said.status.success(), "{arguments:?}");
        assert!(stdout(&said).contains(expected), "{arguments:?}: {}", stdout(&said));
        assert!(said.stderr.is_empty(), "{arguments:?}");
    }
}

#[test]
fn a_wrong_command_line_exits_with_1_and_a_message_on_standard_error() {
    let wrong: [&[&str]; 5] = [
        (&["frobnicate"]),
        (&["genkey", "x"]),
        (&["show", "wg0", "colour"]),
        (&["show", "interfaces", "peers"]),
        (&["show", "../../etc/passwd"]),
    ];
    for arguments in wrong {
        let said = run(arguments, "");
        assert_eq!(said.status.code(), Some(1), "{arguments:?}");
        assert!(said.stdout.is_empty() && !said.stderr.is_empty(), "{arguments:?}");
    }
}

#[test]
fn lab_and_demo_run_the_program_linerate_lab_beside_linerate_or_in_path_or_say_what_to_install() {
    let folder = PathBuf::from(format!("{}/lab-{}", env!("CARGO_TARGET_TMPDIR"), std::process::id()));
    let elsewhere = folder.join("bin");
    fs::create_dir_all(&elsewhere).unwrap();
    let linerate = folder.join("linerate");
    fs::hard_link(LINERATE, &linerate).unwrap();
    let say = |arguments: &[&str]| {
        Command::new(&linerate).args(arguments).env("PATH", &elsewhere).output().expect("linerate runs")
    };
    let missing = say(&["lab", "list"]);
    assert_eq!(missing.status.code(), Some(1));
    assert!(stderr(&missing).starts_with("linerate: linerate-lab is not installed: "), "{}", stderr(&missing));
    for (place, name) in [(&elsewhere, "in PATH"), (&folder, "beside")] {
        let program = place.join("linerate-lab");
        // Written by another process: what this one has open for writing could be open in a child of another test.
        let script = format!("printf '#!/bin/sh\necho {name}: \"$@\"\nexit 7\n' >\"$0\" && chmod 755 \"$0\"");
        assert!(Command::new("sh").args(["-c", &script]).arg(&program).status().unwrap().success());
        let ran = say(&["lab", "run", "--quick", "-h"]);
        assert_eq!((stdout(&ran), ran.status.code()), (format!("{name}: run --quick -h\n"), Some(7)));
        assert_eq!(stdout(&say(&["demo", "--help"])), format!("{name}: demo --help\n"));
    }
    let missing = say(&["proxy", "wg0.conf", "-D", "1080"]);
    assert!(stderr(&missing).starts_with("linerate: linerate-proxy is not installed: "), "{}", stderr(&missing));
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn completions_are_made_for_every_shell() {
    for shell in ["bash", "elvish", "fish", "zsh"] {
        let script = run(&["completions", shell], "");
        assert!(script.status.success(), "{shell}");
        assert!(stdout(&script).contains("linerate"), "{shell}");
    }
}

#[test]
fn manual_pages_are_written_to_the_given_directory() {
    let directory = std::env::temp_dir().join(format!("linerate-manual-{}", std::process::id()));
    let missing = run(&["man", directory.to_str().unwrap()], "");
    assert_eq!(missing.status.code(), Some(1), "the directory has to exist");
    fs::create_dir(&directory).unwrap();
    assert!(run(&["man", directory.to_str().unwrap()], "").status.success());
    let page = |name: &str| fs::read_to_string(directory.join(PathBuf::from(name))).unwrap();
    assert!(page("linerate-show.1").contains("WG_HIDE_KEYS"));
    assert!(page("linerate-genkey.1").contains("\n.SH EXAMPLE\n.EX\n"));
    fs::remove_dir_all(&directory).unwrap();
}

fn run(arguments: &[&str], input: &str) -> Output {
    let mut command = Command::new(LINERATE);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // A program that does not read its input may have ended by now.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}
