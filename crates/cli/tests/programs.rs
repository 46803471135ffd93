//! The programs as their users meet them: arguments, exit codes, what is written where. Nothing here
//! needs root; tunnels are in `tests/netns`.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

const LINERATE: &str = env!("CARGO_BIN_EXE_linerate");
const LINERATED: &str = env!("CARGO_BIN_EXE_linerated");

#[test]
fn a_pair_of_keys_is_made_by_genkey_and_pubkey() {
    let private = run(LINERATE, &["genkey"], "");
    assert!(private.status.success() && private.stderr.is_empty());
    let public = run(LINERATE, &["pubkey"], &stdout(&private));
    assert!(public.status.success());
    assert_eq!((private.stdout.len(), public.stdout.len()), (45, 45));
    assert_ne!(private.stdout, public.stdout);
    assert_ne!(stdout(&run(LINERATE, &["genpsk"], "")), stdout(&run(LINERATE, &["genpsk"], "")));
}

#[test]
fn a_bad_private_key_is_refused_in_wgs_words() {
    let refused = run(LINERATE, &["pubkey"], "not a key\n");
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
fn help_and_version_go_to_standard_output_and_are_no_failure() {
    let asked: [(&str, &[&str], &str); 9] = [
        (LINERATE, &[], "linerate demo"),
        (LINERATE, &["--help"], "linerate demo"),
        (LINERATE, &["help"], "EXAMPLES"),
        (LINERATE, &["help", "show"], "WG_HIDE_KEYS"),
        (LINERATE, &["show", "--help"], "WG_COLOR_MODE"),
        (LINERATE, &["version"], concat!("linerate ", env!("CARGO_PKG_VERSION"))),
        (LINERATE, &["--version"], concat!("linerate ", env!("CARGO_PKG_VERSION"))),
        (LINERATED, &["--help"], "WG_PROCESS_FOREGROUND"),
        (LINERATED, &["--version"], concat!("linerated ", env!("CARGO_PKG_VERSION"))),
    ];
    for (program, arguments, expected) in asked {
        let said = run(program, arguments, "");
        assert!(said.status.success(), "{arguments:?}");
        assert!(stdout(&said).contains(expected), "{arguments:?}: {}", stdout(&said));
        assert!(said.stderr.is_empty(), "{arguments:?}");
    }
}

#[test]
fn a_wrong_command_line_is_exit_code_1_and_a_word_on_standard_error() {
    let wrong: [(&str, &[&str]); 9] = [
        (LINERATE, &["frobnicate"]),
        (LINERATE, &["genkey", "x"]),
        (LINERATE, &["show", "wg0", "colour"]),
        (LINERATE, &["show", "interfaces", "peers"]),
        (LINERATE, &["show", "../../etc/passwd"]),
        (LINERATE, &["demo", "--rounds", "0"]),
        (LINERATED, &[]),
        (LINERATED, &["a name"]),
        (LINERATED, &["wg0", "wg1"]),
    ];
    for (program, arguments) in wrong {
        let said = run(program, arguments, "");
        assert_eq!(said.status.code(), Some(1), "{arguments:?}");
        assert!(said.stdout.is_empty() && !said.stderr.is_empty(), "{arguments:?}");
    }
}

#[test]
fn the_daemon_refuses_an_environment_it_does_not_understand_before_it_does_anything() {
    for (name, value) in [("LOG_LEVEL", "loud"), ("WG_TUN_FD", "three"), ("WG_UAPI_FD", "-1")] {
        let said = Command::new(LINERATED).arg("linerate-test").env(name, value).output().unwrap();
        assert_eq!(said.status.code(), Some(1));
        assert!(stderr(&said).starts_with(&format!("linerated: {name}={value} is not ")), "{}", stderr(&said));
    }
}

#[test]
fn the_daemon_takes_only_descriptors_that_it_was_given() {
    let said = Command::new(LINERATED).args(["-f", "linerate-test"]).env("WG_TUN_FD", "999").output().unwrap();
    assert_eq!(said.status.code(), Some(1));
    let expected = "linerated: WG_TUN_FD=999 is not a descriptor that this process was given";
    assert!(stderr(&said).starts_with(expected), "{}", stderr(&said));
}

#[test]
fn completions_are_made_for_every_shell_and_both_programs() {
    for shell in ["bash", "elvish", "fish", "zsh"] {
        for program in ["linerate", "linerated"] {
            let script = run(LINERATE, &["completions", shell, program], "");
            assert!(script.status.success(), "{shell}");
            assert!(stdout(&script).contains(program), "{shell}");
        }
    }
}

#[test]
fn manual_pages_are_written_where_one_says() {
    let directory = std::env::temp_dir().join(format!("linerate-manual-{}", std::process::id()));
    let missing = run(LINERATE, &["man", directory.to_str().unwrap()], "");
    assert_eq!(missing.status.code(), Some(1), "the directory has to exist");
    fs::create_dir(&directory).unwrap();
    assert!(run(LINERATE, &["man", directory.to_str().unwrap()], "").status.success());
    let page = |name: &str| fs::read_to_string(directory.join(PathBuf::from(name))).unwrap();
    assert!(page("linerate-show.1").contains("WG_HIDE_KEYS"));
    assert!(page("linerated.8").contains("\n.SH ENVIRONMENT\n") && page("linerated.8").contains("WG_TUN_FD"));
    assert!(page("linerate-genkey.1").contains("\n.SH EXAMPLE\n.EX\n"));
    fs::remove_dir_all(&directory).unwrap();
}

fn run(program: &str, arguments: &[&str], input: &str) -> Output {
    let mut command = Command::new(program);
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
