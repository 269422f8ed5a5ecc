//! The command line as a person meets it.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod gsan;

use gsan::Gsan;

#[test]
fn help_says_the_exit_codes() {
    let help = Gsan::new().run(&["--help"]).succeeds().stdout;
    assert!(help.contains("Exit codes:\n  0   clean\n  66"), "{help}");
}

#[test]
fn every_subcommand_has_help_with_examples() {
    for name in ["completions", "man"] {
        let help = Gsan::new().run(&[name, "--help"]).succeeds().stdout;
        assert!(help.contains("Examples:\n  gsan "), "{name}: {help}");
    }
}

#[test]
fn version_is_the_package_version() {
    let version = Gsan::new().run(&["--version"]).succeeds().stdout;
    assert_eq!(version, format!("gsan {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn wrong_usage_exits_with_2() {
    for arguments in [&["--frob"][..], &["frobnicate"], &["-q", "-v", "man"], &[]] {
        let run = Gsan::new().run(arguments);
        assert_eq!(run.code, 2, "{arguments:?}: {}", run.stderr);
        assert_eq!(run.stdout, "", "{arguments:?}");
    }
}

#[test]
fn completions_exist_for_every_shell() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = Gsan::new().run(&["completions", shell]).succeeds().stdout;
        assert!(script.contains("completions"), "{shell}: {script}");
    }
}

#[test]
fn man_pages_are_named_after_the_command() {
    let page = Gsan::new().run(&["man"]).succeeds().stdout;
    assert!(page.contains(".TH gsan 1"), "{page}");
    let page = Gsan::new().run(&["man", "completions"]).succeeds().stdout;
    assert!(page.contains(".TH gsan-completions 1"), "{page}");
}

#[test]
fn man_of_an_unknown_subcommand_names_the_known_ones() {
    let run = Gsan::new().run(&["man", "frob"]);
    assert_eq!(run.code, 2);
    insta::assert_snapshot!(run.stderr, @r"
    error: there is no subcommand `frob`
     |
     = help: the subcommands are completions, man
    ");
}

#[test]
fn a_closed_pipe_ends_the_program_quietly() {
    let run = Gsan::new().run_with_closed_output(&["completions", "zsh"]);
    assert_eq!((run.code, run.stderr.as_str()), (0, ""));
}
