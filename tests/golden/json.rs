//! JSON that needs no kernel.

use std::{collections::BTreeSet, fs};

use anyhow::{Context as _, Result, ensure};
use perturb_tests::product::Product;
use tempfile::TempDir;

use super::{compare, here, keys, perturb, printed, run};

/// Files, the arguments whose output they describe, and where keys are data.
pub(super) const OUTPUTS: &[(&str, &str, &[&str])] = &[
    ("check", "check --json profile.yaml", &[]),
    ("check-topology", "check --json topology.yaml", &[]),
    ("predict-loggp", "predict loggp --json loggp.yaml", &[]),
    ("predict-nfs", "predict nfs --json nfs.yaml", &[]),
    ("predict-pipeline", "predict pipeline --json pipeline.yaml", &[]),
    ("predict-plogpt", "predict plogpt --json plogpt.yaml", &[]),
    (
        "predict-plogpt-sweep",
        "predict plogpt --json plogpt-collective.yaml --nodes 4,32 --messages 1KiB,1MiB",
        &[],
    ),
    (
        "predict-plogpt-profile",
        "predict plogpt --json plogpt-collective.yaml --nodes 2 --profile topology.yaml",
        &[],
    ),
    ("predict-logpc", "predict logpc --json logpc.yaml", &[]),
    (
        "predict-logpc-profile",
        "predict logpc --json logpc.yaml --profile mesh.yaml",
        &[],
    ),
    (
        "predict-loggp-profile",
        "predict loggp --json loggp.yaml --profile topology.yaml",
        &[],
    ),
    (
        "predict-whatif-profile",
        "predict whatif --json whatif.yaml --profile profile.yaml",
        &[],
    ),
    (
        "predict-logpc-simulate",
        "predict logpc --json --simulate --sweep --messages 1000 logpc-mesh.yaml",
        &[],
    ),
    ("predict-whatif", "predict whatif --json whatif.yaml", &[]),
    (
        "predict-whatif-rows",
        "predict whatif --json --rows whatif.yaml",
        &[],
    ),
    (
        "predict-whatif-follow",
        "predict whatif --json --follow whatif.yaml",
        &[],
    ),
    (
        "predict-whatif-suggest",
        "predict whatif --json --suggest 2 whatif.yaml",
        &[],
    ),
    ("predict-validate", "predict validate --json", &[]),
    (
        "locality",
        "locality --json --working-sets --network 100,1,3 locality.txt",
        &[],
    ),
    ("locality-requests", "locality --json requests.jsonl", &[]),
    (
        "locality-experiment",
        "locality --json --experiment 20 --network 100,1,8",
        &[],
    ),
    ("locality-thresholds", "locality --json --thresholds 2", &[]),
    ("reproduce-list", "reproduce --json", &[]),
    ("sweep-dry-run", "sweep --dry-run --json experiment.yaml", &[]),
    ("report", "report --json sweep", &[]),
    ("report-compare", "report --json sweep sweep", &[]),
    (
        "trace-overhead",
        "trace --json --overhead 1 --out /dev/null -- true",
        &[],
    ),
];

#[test]
fn outputs() -> Result<()> {
    let product = Product::find_or_beside()?;
    let wrong: Vec<String> = OUTPUTS
        .iter()
        .filter_map(|(name, arguments, maps)| {
            let arguments: Vec<&str> = arguments.split(' ').collect();
            let compared = printed(&product, &arguments)
                .and_then(|text| keys::lines(&text, maps))
                .and_then(|lines| compare(&format!("json/{name}.txt"), &lines));
            compared.err().map(|error| format!("{name}: {error:#}"))
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

/// What is wrong with a profile, as JSON beside exit code 2.
#[test]
fn mistakes() -> Result<()> {
    let output = run(&Product::find_or_beside()?, &["check", "--json", "wrong.yaml"])?;
    assert_eq!(output.status.code(), Some(2));
    compare(
        "json/check-wrong.txt",
        &keys::lines(&String::from_utf8(output.stdout)?, &[])?,
    )
}

/// The schema of profiles, whole: editors read it.
#[test]
fn schema() -> Result<()> {
    compare("schema.json", &printed(&Product::find_or_beside()?, &["schema"])?)
}

/// The recorded sweep as files: the page's data, and which files there are.
#[test]
fn files_of_a_report() -> Result<()> {
    let out = TempDir::with_prefix("perturb-golden-")?;
    let place = out.path().to_str().context("a directory")?;
    printed(&Product::find_or_beside()?, &["report", "sweep", "--out", place])?;
    let names = fs::read_dir(out.path())?
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned() + "\n"))
        .collect::<Result<BTreeSet<_>>>()?;
    compare("report-files.txt", &names.into_iter().collect::<String>())
}

/// A server in memory and a load on it; the events of their trace, and its summary.
#[test]
fn trace_and_nfs() -> Result<()> {
    const SCRIPT: &str = r#"
        "$PERTURB" nfs serve --json --listen 127.0.0.1:0 --for 2s > serve &
        until port=$(sed -n 's/.*127.0.0.1:\([0-9]*\)".*/\1/p' serve | grep .); do sleep 0.05; done
        "$PERTURB" nfs load --json --histogram --quiet --server 127.0.0.1:/export --nfs-port $port --mount-port $port \
            --rate 50 --scale 0.001 --warmup 100ms --duration 300ms > load
        wait
    "#;
    let product = Product::find_or_beside()?;
    let folder = TempDir::with_prefix("perturb-golden-")?;
    let trace = [
        "trace", "--json", "--times", "--out", "events", "--", "sh", "-c", SCRIPT,
    ];
    let output = perturb(&product, &trace)
        .current_dir(&folder)
        .env("PERTURB", &product.path)
        .output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{said}");
    let read = |name: &str| fs::read_to_string(folder.path().join(name)).context("what the script wrote");
    for (name, text, maps) in [
        ("nfs-serve", read("serve")?, &["calls"][..]),
        ("nfs-load", read("load")?, &["operations"]),
        ("trace-events", read("events")?, &[]),
        ("trace-summary", String::from_utf8(output.stdout)?, &[]),
    ] {
        compare(&format!("json/{name}.txt"), &keys::lines(&text, maps)?)?;
    }
    Ok(())
}

/// Each input of the directory belongs to an output.
#[test]
fn no_file_is_left_over() -> Result<()> {
    let described = OUTPUTS.iter().map(|(name, ..)| format!("{name}.txt"));
    let others = super::emulated::NAMES.iter().chain(&[
        "check-wrong",
        "reproduce",
        "trace-summary",
        "trace-events",
        "nfs-load",
        "nfs-serve",
    ]);
    let known: Vec<String> = described
        .chain(others.map(|name| format!("{name}.txt")))
        .collect();
    for entry in fs::read_dir(here().join("json"))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        assert!(
            known.contains(&name),
            "tests/golden/json/{name} is compared with nothing"
        );
    }
    Ok(())
}
