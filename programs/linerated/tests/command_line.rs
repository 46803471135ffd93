//! The daemon as its users meet it: arguments, exit codes, what is written where. Nothing here needs root; tunnels are
//! in `tests/netns`.

use std::fs;
use std::process::{Command, Output};

#[test]
fn help_and_version_go_to_standard_output_and_are_no_failure() {
    let version = concat!("linerated ", env!("CARGO_PKG_VERSION"));
    for (argument, expected) in [("--help", "WG_PROCESS_FOREGROUND"), ("--version", version)] {
        let said = run(&[argument]);
        assert!(said.status.success(), "{argument}");
        assert!(stdout(&said).contains(expected), "{argument}: {}", stdout(&said));
        assert!(said.stderr.is_empty(), "{argument}");
    }
}

#[test]
fn a_wrong_command_line_is_exit_code_1_and_a_word_on_standard_error() {
    let wrong: [&[&str]; 5] = [&[], &["a name"], &["wg0", "wg1"], &["--man", "/", "wg0"], &["--completions", "csh"]];
    for arguments in wrong {
        let said = run(arguments);
        assert_eq!(said.status.code(), Some(1), "{arguments:?}");
        assert!(said.stdout.is_empty() && !said.stderr.is_empty(), "{arguments:?}");
    }
}

#[test]
fn the_daemon_refuses_an_environment_it_does_not_understand_before_it_does_anything() {
    for (name, value) in [("LOG_LEVEL", "loud"), ("WG_TUN_FD", "three"), ("WG_UAPI_FD", "-1")] {
        let said = linerated().arg("linerate-test").env(name, value).output().unwrap();
        assert_eq!(said.status.code(), Some(1));
        assert!(stderr(&said).starts_with(&format!("linerated: {name}={value} is not ")), "{}", stderr(&said));
    }
}

#[test]
fn the_daemon_takes_only_descriptors_that_it_was_given() {
    let said = linerated().args(["-f", "linerate-test"]).env("WG_TUN_FD", "999").output().unwrap();
    assert_eq!(said.status.code(), Some(1));
    let expected = "linerated: WG_TUN_FD=999 is not an inherited descriptor of this process";
    assert!(stderr(&said).starts_with(expected), "{}", stderr(&said));
}

#[test]
fn completions_are_made_for_every_shell() {
    for shell in ["bash", "elvish", "fish", "zsh"] {
        let script = run(&["--completions", shell]);
        assert!(script.status.success(), "{shell}");
        assert!(stdout(&script).contains("linerated"), "{shell}");
    }
}

#[test]
fn the_manual_page_is_written_where_one_says() {
    let directory = std::env::temp_dir().join(format!("linerated-manual-{}", std::process::id()));
    fs::create_dir(&directory).unwrap();
    assert!(run(&["--man", directory.to_str().unwrap()]).status.success());
    let page = fs::read_to_string(directory.join("linerated.8")).unwrap();
    assert!(page.contains("\n.SH ENVIRONMENT\n") && page.contains("WG_TUN_FD"));
    assert!(page.contains("<\\fIIFACE\\fR>"), "the interface is required: {page}");
    fs::remove_dir_all(&directory).unwrap();
}

fn run(arguments: &[&str]) -> Output {
    linerated().args(arguments).output().unwrap()
}

fn linerated() -> Command {
    Command::new(env!("CARGO_BIN_EXE_linerated"))
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}
