//! The environment variable that overrides the choice: one process for each value, because a process chooses once.

use std::env;
use std::process::Command;

use linerate_aead::choose::{self, Choice, VARIABLE};

/// The best implementation on a known CPU; set by `tests/emulated`.
const BEST: &str = "LINERATE_TEST_BEST";

/// The command that starts a program on the emulated CPU, if this program runs on one: without it, a process would run
/// on the real CPU.
const EMULATOR: &str = "LINERATE_TEST_EMULATOR";

#[test]
fn the_best_on_a_known_cpu_is_the_expected_one() {
    match env::var(BEST) {
        Ok(known) => assert_eq!(Choice::best().name(), known),
        Err(_) => println!("skipped: {BEST} is not set, so what this CPU has is not known"),
    }
}

/// Run by the processes of the tests below; holds for this process, too.
#[test]
fn the_current_choice_comes_from_the_variable_or_is_the_best() {
    let current = choose::current();
    match choose::from_environment() {
        Ok(choice) => {
            println!("chosen: {choice:?}");
            assert_eq!(current.name(), choice.name());
        }
        Err(refusal) => {
            println!("refused: {refusal}");
            assert_eq!(current.name(), Choice::best().name());
        }
    }
    println!("current: {current:?}");
}

fn reported_with(value: Option<&str>) -> String {
    let mut process = this_program();
    process
        .args(["--exact", "the_current_choice_comes_from_the_variable_or_is_the_best", "--nocapture"])
        .env_remove(VARIABLE);
    let output = process.envs(value.map(|value| (VARIABLE, value))).output().expect("this program can be run");
    String::from_utf8(output.stdout).expect("the report is text")
}

#[test]
fn the_variable_can_choose_everything_that_runs_here() {
    for choice in Choice::available() {
        let report = reported_with(Some(choice.name()));
        assert!(report.contains(&format!("chosen: {choice:?}\ncurrent: {choice:?}\n")), "{report}");
    }
}

#[test]
fn without_the_variable_the_best_is_chosen() {
    for value in [None, Some("")] {
        let best = Choice::best();
        assert!(reported_with(value).contains(&format!("chosen: {best:?}\ncurrent: {best:?}\n")));
    }
}

#[test]
fn an_unavailable_choice_is_refused_with_a_list_and_the_best_still_works() {
    let report = reported_with(Some("avx1024"));
    for choice in Choice::available() {
        assert!(report.contains(&format!(" {choice:?}")), "{report}");
    }
    assert!(report.contains("refused: LINERATE_AEAD=\"avx1024\" is not available"), "{report}");
    assert!(report.contains(&format!("current: {:?}", Choice::best())), "{report}");
}

fn this_program() -> Command {
    let path = env::current_exe().expect("this program has a path");
    let emulator = env::var(EMULATOR).unwrap_or_default();
    let mut words = emulator.split_whitespace();
    let Some(program) = words.next() else { return Command::new(path) };
    let mut process = Command::new(program);
    process.args(words).arg(path);
    process
}
