//! What a program is made of, in CycloneDX's format: `perturb-VERSION-ARCH.cdx.json`.
//!
//! Model: cargo says which crates are in it, those of the eBPF programs too, and Cargo.lock what each one's archive hashes to.
//! It names no time but the last commit's and no directory, so that two of the same commit are equal.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::{VERSION, cross, wrap::LICENSE};
use crate::{command::output, setup::compiler::Compiler, workspace};

/// Crates whose dependencies are in the program.
const ROOTS: [&str; 2] = ["perturb", "perturb-ebpf"];

/// A crate: its name, its version, and the license as its manifest has it.
type Crate = (String, String, String);

pub(super) fn write(to: &Path, target: &str, created: &str, compiler: &Compiler) -> Result<()> {
    let mut crates = BTreeSet::new();
    for root in ROOTS {
        let mut cargo = compiler.plain_cargo();
        cargo
            .args([
                "tree", "--locked", "--edges", "normal", "--prefix", "none", "--format", "{p}|{l}",
            ])
            .args(["--package", root, "--target", target])
            .current_dir(workspace::root());
        let listed =
            output(&mut cargo).with_context(|| format!("cargo does not list the crates of {root}"))?;
        crates.extend(listed.lines().filter_map(crate_of));
    }
    let lock = fs::read_to_string(workspace::root().join("Cargo.lock")).context("cannot read Cargo.lock")?;
    let sums = checksums(&lock);
    let mut components: Vec<Value> = crates
        .iter()
        .filter(|(name, ..)| name != "perturb")
        .map(|one| component(one, &sums))
        .collect();
    components.push(json!({
        "type": "library", "name": "std", "version": compiler.to_string(),
        "licenses": [{ "expression": "MIT OR Apache-2.0" }],
    }));
    components.push(json!({
        "type": "library", "name": "musl", "version": format!("of Zig {}", cross::ZIG),
        "licenses": [{ "expression": "MIT" }],
    }));
    let document = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "timestamp": created,
            "component": {
                "type": "application", "bom-ref": "perturb", "name": "perturb", "version": VERSION,
                "licenses": [{ "expression": LICENSE }],
            },
        },
        "components": components,
    });
    let text = serde_json::to_string_pretty(&document).context("cannot write JSON")? + "\n";
    fs::write(to, text).with_context(|| format!("cannot write {}", to.display()))
}

/// Of a line `NAME vVERSION (where it is)|LICENSE`.
fn crate_of(line: &str) -> Option<Crate> {
    let (package, license) = line.split_once('|')?;
    let mut words = package.split(' ');
    let (name, version) = (words.next()?, words.next()?.strip_prefix('v')?);
    // An old form of `OR`; a mark says that the crate's dependencies stand further up.
    let license = license.trim_end_matches(" (*)").replace('/', " OR ");
    Some((name.to_owned(), version.to_owned(), license))
}

/// Of Cargo.lock: name and version to checksum.
fn checksums(lock: &str) -> BTreeMap<(&str, &str), &str> {
    let packages = lock.split("[[package]]\n").skip(1);
    let field = |package: &'_ str, key: &str| -> Option<(usize, usize)> {
        let start = package.find(&format!("{key} = \""))? + key.len() + 4;
        Some((start, start + package[start..].find('"')?))
    };
    packages
        .filter_map(|package| {
            let value = |key| field(package, key).map(|(start, end)| &package[start..end]);
            Some(((value("name")?, value("version")?), value("checksum")?))
        })
        .collect()
}

fn component((name, version, license): &Crate, sums: &BTreeMap<(&str, &str), &str>) -> Value {
    let mut component = json!({ "type": "library", "name": name, "version": version });
    if !license.is_empty() {
        component["licenses"] = json!([{ "expression": license }]);
    }
    if let Some(sum) = sums.get(&(name.as_str(), version.as_str())) {
        component["purl"] = format!("pkg:cargo/{name}@{version}").into();
        component["hashes"] = json!([{ "alg": "SHA-256", "content": sum }]);
    }
    component
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crate_has_its_checksum() {
        let line = "a-b v1.2.3 (/somewhere)|MIT/Apache-2.0 (*)";
        let found = crate_of(line);
        let expected = (
            "a-b".to_owned(),
            "1.2.3".to_owned(),
            "MIT OR Apache-2.0".to_owned(),
        );
        assert_eq!(found.as_ref(), Some(&expected));
        assert_eq!(crate_of(""), None);
        let lock = "version = 4\n\n[[package]]\nname = \"a-b\"\nversion = \"1.2.3\"\nchecksum = \"c0ffee\"\n";
        let component = component(&expected, &checksums(lock));
        assert_eq!(component["hashes"][0]["content"], "c0ffee");
        assert_eq!(component["purl"], "pkg:cargo/a-b@1.2.3");
    }
}
