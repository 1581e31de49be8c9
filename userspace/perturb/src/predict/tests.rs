//! The commands over the papers' inputs.

use std::path::PathBuf;

use clap::{FromArgMatches as _, Subcommand as _};

use super::*;

fn data(file: &str) -> String {
    format!("{}/../models/tests/data/{file}", env!("CARGO_MANIFEST_DIR"))
}

fn predict(arguments: &[&str]) -> anyhow::Result<String> {
    let command = Model::augment_subcommands(clap::Command::new("predict"));
    let matches = command.try_get_matches_from([&["predict"], arguments].concat())?;
    let model = Model::from_arg_matches(&matches)?;
    let mut out = Vec::new();
    run(&PredictArgs { model }, &mut out)?;
    Ok(String::from_utf8(out)?)
}

fn refused(model: &str, yaml: &str) -> String {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("input.yaml");
    std::fs::write(&file, yaml).unwrap();
    let error = predict(&[model, &file.display().to_string()]).unwrap_err();
    assert!(is_invalid_input(&error), "{error:#}");
    format!("{error:#}")
}

#[test]
fn the_papers_inputs() {
    for (model, file, key) in [
        ("loggp", "loggp/radix.yaml", "run_time_s"),
        ("nfs", "nfs/scsi.yaml", "response_ms"),
        ("nfs", "nfs/raid-fitted.yaml", "r_squared"),
        ("plogpt", "plogpt/fig9.yaml", "operations"),
        ("plogpt", "plogpt/table2-alltoall-b.yaml", "plogp_us"),
        ("pipeline", "pipeline/gam.yaml", "loggp"),
    ] {
        let file = data(file);
        let json: serde_json::Value =
            serde_json::from_str(&predict(&[model, &file, "--json"]).unwrap()).unwrap();
        assert!(
            json.get(key).is_some_and(|value| !value.is_null()),
            "{file}: {key}"
        );
        assert!(predict(&[model, &file]).unwrap().lines().count() > 3, "{file}");
    }
}

#[test]
fn sweeps_of_collectives_only() {
    let table = data("plogpt/table2-alltoall-b.yaml");
    let out = predict(&["plogpt", &table, "--nodes", "4,8", "--messages", "1KiB,1MiB"]).unwrap();
    assert_eq!(out.lines().count(), 5);
    let error = predict(&["plogpt", &data("plogpt/fig9.yaml"), "--nodes", "4"]).unwrap_err();
    assert!(is_invalid_input(&error));
    assert!(predict(&["plogpt", &table, "--messages", "1"]).is_err());
}

#[test]
fn messages_from_a_trace() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| -> String {
        let path: PathBuf = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let input = file(
        "input.yaml",
        "baseline: {run_time: 1s, overhead: 1us}\nvary: {overhead: [2us]}\n",
    );
    let send = "{\"process\": 1, \"type\": \"send\", \"message\": \"m\", \"bytes\": 8}\n";
    let trace = file("trace.jsonl", &send.repeat(1000));
    let out = predict(&["loggp", &input, "--trace", &trace, "--json"]).unwrap();
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(json["run_time_s"], serde_json::json!([1.002]));
    let broken = file("broken.jsonl", &format!("{send}no event\n"));
    let error = predict(&["loggp", &input, "--trace", &broken]).unwrap_err();
    assert!(
        is_invalid_input(&error) && format!("{error:#}").contains("broken.jsonl, line 2"),
        "{error:#}"
    );
}

#[test]
fn errors_say_where() {
    let error = refused(
        "loggp",
        "baseline: {run_time: 1}\nmessages: {maximum: 1}\nvary: {overhead: [1us]}\n",
    );
    assert!(
        error.contains("line 1 column 22") && error.contains("`1` has no unit; write a duration"),
        "{error}"
    );
    assert_eq!(error.matches("line 1 column 22").count(), 1, "said once: {error}");
    let error = refused("nfs", "server: {cpu: 1ms}\nrates: []\n");
    assert!(error.contains("unknown field `cpu`"), "{error}");
    let error = refused("pipeline", "stages: []\nmessage: 1B\n");
    assert!(
        error.ends_with("stages is empty; give at least one stage"),
        "{error}"
    );
    let error = predict(&["plogpt", "/no/such/file"]).unwrap_err();
    assert!(
        is_invalid_input(&error) && format!("{error:#}").starts_with("/no/such/file: "),
        "{error:#}"
    );
    assert!(is_invalid_input(
        &predict(&["validate", "--model", "ising"]).unwrap_err()
    ));
}

#[test]
fn the_documentation_says_how_many_numbers_agree() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/models.md");
    let document = std::fs::read_to_string(path).unwrap();
    let printed = predict(&["validate"]).unwrap();
    let agree = printed
        .lines()
        .find(|line| line.ends_with("within their rounding."))
        .unwrap();
    assert!(document.contains(agree), "{path} lacks: {agree}");
}
