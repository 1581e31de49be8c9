//! `action.yml` as a runner of GitHub would carry it out, but for its expressions, of which it has few.

use std::{collections::BTreeMap, fs, os::unix::fs::PermissionsExt as _, path::Path};

use anyhow::{Context as _, Result, bail, ensure};
use perturb_tests::product::apart;
use perturb_verdict::{complete, conclude, installed, root};
use serde_json::Value;
use tempfile::TempDir;

use super::{THIS, package};

/// In place of sudo, for root needs none.
const SUDO: &str = "#!/bin/sh\n[ \"$1\" = --preserve-env ] && shift\nexec \"$@\"\n";

/// A runner's directory, and what a step left there.
struct Runner {
    directory: TempDir,
    /// What the steps have added to PATH, first the last.
    path: String,
}

/// How an action ended, and what it said.
struct Ended {
    code: Option<i32>,
    text: String,
    summary: String,
}

impl Runner {
    fn new() -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let sudo = directory.path().join("sudo/sudo");
        fs::create_dir(directory.path().join("sudo"))?;
        fs::write(&sudo, SUDO)?;
        fs::set_permissions(&sudo, fs::Permissions::from_mode(0o755))?;
        let path = format!("{}/sudo:{}", directory.path().display(), std::env::var("PATH")?);
        Ok(Self { directory, path })
    }

    /// Carries out the action until a step fails.
    fn act(mut self, given: &[(&str, &str)]) -> Result<Ended> {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../action.yml");
        let action: Value = serde_saphyr::from_str(&fs::read_to_string(file)?)?;
        let mut values: BTreeMap<String, String> = BTreeMap::new();
        for (name, input) in action["inputs"].as_object().context("no inputs")? {
            let given = given.iter().find(|(key, _)| key == name).map(|(_, value)| *value);
            let value = given.or_else(|| input["default"].as_str());
            let value = value.with_context(|| format!("{name} is required"))?;
            values.insert(format!("inputs.{name}"), value.to_owned());
        }
        for (name, value) in [
            ("server_url", "nowhere://"),
            ("action_repository", "o/perturb"),
            ("action_ref", "v1"),
        ] {
            values.insert(format!("github.{name}"), value.to_owned());
        }
        let place = self.directory.path().to_owned();
        let (summary, added) = (place.join("summary"), place.join("path"));
        fs::write(&summary, "")?;
        fs::write(&added, "")?;
        let mut ended = Ended {
            code: Some(0),
            text: String::new(),
            summary: String::new(),
        };
        for step in action["runs"]["steps"].as_array().context("no steps")? {
            ensure!(step["shell"] == "bash", "{step}");
            // As GitHub's runners start it.
            let mut shell = apart();
            shell.args(["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c"]);
            shell.arg(step["run"].as_str().context("a step without commands")?);
            shell
                .env("PATH", &self.path)
                .env("RUNNER_TEMP", &place)
                .current_dir(&place);
            shell
                .env("GITHUB_STEP_SUMMARY", &summary)
                .env("GITHUB_PATH", &added);
            for (name, value) in step["env"].as_object().into_iter().flatten() {
                shell.env(name, filled(value.as_str().context("not a text")?, &values)?);
            }
            let output = shell.output()?;
            ended.text += &String::from_utf8_lossy(&output.stdout);
            ended.text += &String::from_utf8_lossy(&output.stderr);
            ended.code = output.status.code();
            if ended.code != Some(0) {
                break;
            }
            for directory in fs::read_to_string(&added)?.lines() {
                self.path = format!("{directory}:{}", self.path);
            }
        }
        ended.summary = fs::read_to_string(summary)?;
        Ok(ended)
    }
}

/// Puts in values for `${{ NAME }}`.
fn filled(text: &str, values: &BTreeMap<String, String>) -> Result<String> {
    let mut filled = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${{") {
        let (name, after) = after.split_once("}}").context("an expression without an end")?;
        let Some(value) = values.get(name.trim()) else {
            bail!("nobody knows {name}")
        };
        filled += before;
        filled += value;
        rest = after;
    }
    Ok(filled + rest)
}

#[test]
fn it_runs_commands_and_writes_a_summary() {
    let acted = || {
        root()?;
        installed(&["jq", "ping", "unshare"])?;
        let archive = package(&format!("{THIS}.tar.gz"))?;
        let archive = archive.to_string_lossy();
        let call = [
            ("archive", &*archive),
            ("profile", "mobile-lte"),
            ("options", "--hosts 3"),
        ];
        let with = |more: &[(&'static str, &'static str)]| -> Result<Ended> {
            let given: Vec<_> = call.iter().copied().chain(more.iter().copied()).collect();
            let ended = Runner::new()?.act(&given)?;
            complete(&ended.text)?;
            Ok(ended)
        };
        let good = with(&[("run", "ping -c 2 -i 0.2 h3\necho \"it is $(hostname)\"")])?;
        ensure!(
            good.code == Some(0) && good.text.contains("2 received"),
            "{}",
            good.text
        );
        ensure!(
            good.summary.starts_with("### perturb: mobile-lte\n"),
            "{}",
            good.summary
        );
        ensure!(good.summary.contains("| egress | 2 |"), "{}", good.summary);
        // A command that fails fails the step, but there is a summary.
        let bad = with(&[("run", "false\necho gone on")])?;
        ensure!(
            bad.code == Some(1) && !bad.text.contains("gone on"),
            "{:?}: {}",
            bad.code,
            bad.text
        );
        ensure!(!bad.summary.is_empty(), "no summary");
        let other = with(&[("run", "true"), ("sha256", "0000")])?;
        ensure!(
            other.code == Some(1) && other.text.contains("::error"),
            "{}",
            other.text
        );
        Ok(())
    };
    conclude(acted());
}

#[test]
fn an_archive_that_is_not_there_is_named() {
    let acted = || {
        installed(&["curl", "unshare"])?;
        root()?;
        let ended = Runner::new()?.act(&[("profile", "p"), ("run", "true")])?;
        let url =
            format!("nowhere:///o/perturb/releases/download/v1/perturb-1-{THIS}.tar.gz cannot be fetched");
        ensure!(
            ended.code == Some(1) && ended.text.contains(&url),
            "{}",
            ended.text
        );
        Ok(())
    };
    conclude(acted());
}
