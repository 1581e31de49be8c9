//! The bill of materials.

use std::{fs, path::PathBuf, process::Command};

use anyhow::{Context as _, Result, ensure};
use perturb_verdict::{conclude, installed};
use serde_json::Value;

use super::{package, said, whole};

/// CycloneDX's own library, with the format's JSON schemas.
const LIBRARY: &str = "cyclonedx-python-lib[json-validation]==11.12.0";
const VALIDATE: &str = "
import sys
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
for path in sys.argv[1:]:
    fault = JsonStrictValidator(SchemaVersion.V1_5).validate_str(open(path).read())
    print(fault or 'valid')
";

fn bills() -> Result<[PathBuf; 2]> {
    whole()?;
    Ok([package("x86_64.cdx.json")?, package("aarch64.cdx.json")?])
}

#[test]
fn it_names_every_crate_and_its_license() {
    let read = || {
        for path in bills()? {
            let bill: Value = serde_json::from_str(&fs::read_to_string(&path)?)?;
            let components = bill["components"].as_array().context("no components")?;
            let named = |name: &str| components.iter().find(|one| one["name"] == name);
            for name in ["aya", "aya-ebpf", "tokio", "std", "musl"] {
                let component = named(name).with_context(|| format!("{}: no {name}", path.display()))?;
                ensure!(component["licenses"][0]["expression"].is_string(), "{component}");
            }
            let hashed = components.iter().filter(|one| one["hashes"].is_array());
            ensure!(hashed.count() > 100, "{}: too few hashes", path.display());
        }
        Ok(())
    };
    conclude(read());
}

#[test]
fn it_is_what_the_format_s_schema_asks_for() {
    let validated = || {
        let bills = bills()?;
        installed(&["python3", "pip3"])?;
        let directory = tempfile::tempdir()?;
        let library = directory.path().join("library");
        let pip = ["-m", "pip", "install", "--quiet", "--target"];
        said(Command::new("python3").args(pip).arg(&library).arg(LIBRARY))?;
        let wrong = directory.path().join("wrong.json");
        fs::write(
            &wrong,
            fs::read_to_string(&bills[0])?.replace("\"library\"", "\"book\""),
        )?;
        let mut python = Command::new("python3");
        python.env("PYTHONPATH", &library).args(["-c", VALIDATE]);
        let text = said(python.args(&bills).arg(&wrong))?;
        let verdicts: Vec<_> = text.lines().take(2).collect();
        ensure!(verdicts == ["valid", "valid"], "{text}");
        ensure!(!text.ends_with("valid\n"), "it takes a wrong one:\n{text}");
        Ok(())
    };
    conclude(validated());
}
