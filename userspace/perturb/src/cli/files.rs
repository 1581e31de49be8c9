//! Commands that only read and print.

use anyhow::{Context as _, ensure};
use perturb_emulator::{
    conduct::Pacing, lab::all_addresses, own_namespace::may_load_programs, prepared::Prepared, switched::fits,
};
use perturb_experiments::carry::{self, Carried};
use perturb_profile::explain;
use serde::Serialize;

use super::{Check, DONE};

/// The kernel lacks something.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Lacking(pub(crate) String);

#[derive(Serialize)]
struct Checked {
    valid: bool,
    profile: String,
    explanation: perturb_profile::Explanation,
    /// Why it needs root.
    #[serde(skip_serializing_if = "Option::is_none")]
    needs_root: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    core: Option<Carried>,
}

pub(super) fn check(args: &Check) -> anyhow::Result<u8> {
    let prepared = match Prepared::checked(&args.profile) {
        Ok(prepared) => prepared,
        Err(error) if args.json => {
            let errors = match &error {
                perturb_emulator::prepared::ProfileError::Load(perturb_profile::LoadError::Invalid(
                    found,
                )) => serde_json::to_value(&found.errors)?,
                other => serde_json::json!([{ "message": other.to_string() }]),
            };
            println!("{}", serde_json::json!({ "valid": false, "errors": errors }));
            return Err(error.into());
        }
        Err(error) => return Err(error.into()),
    };
    if let Some(path) = &args.svg {
        let picture = super::changes::picture(&prepared)?.with_context(|| {
            format!(
                "{}: nothing changes, so there is nothing to draw; add a `timeline` or a `trace`",
                args.profile.display()
            )
        })?;
        std::fs::write(path, picture).with_context(|| format!("writing {}", path.display()))?;
    }
    let explanation = explain(&prepared.profile, &prepared.files);
    let needs_root = fits(&prepared.tables).err().map(|unfit| unfit.0);
    let core = match args.core {
        Some(count) => core_of(args, count)?,
        None => None,
    };
    if args.json {
        let checked = Checked {
            valid: true,
            profile: prepared.profile.to_string(),
            explanation,
            needs_root,
            core,
        };
        println!("{}", serde_json::to_string_pretty(&checked)?);
        return Ok(DONE);
    }
    print!("{}", prepared.profile);
    eprint!("{explanation}");
    if let Some(why) = needs_root {
        eprintln!("note: without root it is refused (pacer switch): {why}");
    }
    if let Some(core) = core {
        eprintln!("{core}");
        if !core.is_enough() {
            log::warn!("this machine may be too slow a core: have fewer hosts, or a slower network");
        }
    }
    Ok(DONE)
}

/// What this machine carries for so many private hosts.
fn core_of(args: &Check, count: u32) -> anyhow::Result<Option<Carried>> {
    ensure!(
        may_load_programs(),
        "--core measures an emulation, which needs root here"
    );
    let prepared = Prepared::load_for(&args.profile, &all_addresses(count))?;
    carry::measure(&prepared.profile, Pacing::default())
}

pub(super) fn schema() -> anyhow::Result<u8> {
    let schema = serde_json::to_string_pretty(&perturb_profile::schema()).context("printing the schema")?;
    println!("{schema}");
    Ok(DONE)
}
