//! `--profile`: the network of a model from a profile, and what became of it.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use perturb_models::route::{RouteError, Source, Translation};
use perturb_present::Table;
use perturb_profile::Profile;
use serde::Serialize;

use super::input::InputError;

/// The option.
#[derive(Args, Debug, Default)]
pub(crate) struct ProfileArg {
    /// Take the network from this profile; what it says counts instead of the input's, which may leave it out.
    #[arg(long, value_name = "PROFILE")]
    pub profile: Option<PathBuf>,
}

impl ProfileArg {
    /// Reads it, if it is given.
    pub(super) fn load(&self) -> Result<Option<Profile>, InputError> {
        let load = |path: &PathBuf| perturb_profile::load(path).map(|loaded| loaded.profile);
        Ok(self.profile.as_ref().map(load).transpose()?)
    }

    /// Puts it, if it is given, into a model's input by `on_profile`.
    pub(super) fn put(
        &self,
        on_profile: impl FnOnce(&Profile) -> Result<Translation, RouteError>,
    ) -> Result<Option<Used>, InputError> {
        let Some(profile) = self.load()? else {
            return Ok(None);
        };
        let translation = on_profile(&profile).map_err(|error| self.refused(error))?;
        Ok(self.used(translation))
    }

    /// That a model cannot use it.
    pub(super) fn refused(&self, error: RouteError) -> InputError {
        InputError::model(self.profile.as_deref().unwrap_or(Path::new("--profile")), error)
    }

    /// What a model took from it.
    pub(super) fn used(&self, translation: Translation) -> Option<Used> {
        let file = self.profile.as_ref()?.display().to_string();
        Some(Used { file, translation })
    }
}

/// An answer, and what of a profile went into it.
#[derive(Serialize)]
pub(super) struct WithProfile<T> {
    #[serde(flatten)]
    pub(super) answer: T,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) profile: Option<Used>,
}

/// What a model took from a profile; the key `profile` of `--json`.
#[derive(Debug, Serialize)]
pub(super) struct Used {
    file: String,
    #[serde(flatten)]
    translation: Translation,
}

impl Used {
    /// Prints it below the prediction.
    pub(super) fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        let Translation {
            taken,
            unused,
            replaced,
        } = &self.translation;
        let mut table = Table::new(3, &["network", "from", "value"]);
        for taken in taken {
            let from = match taken.from {
                Source::Profile => "the profile",
                Source::Input => "the input",
                Source::Default => "nothing: default",
            };
            table.row(vec![taken.key.to_owned(), from.to_owned(), taken.value.clone()]);
        }
        writeln!(out, "\nnetwork of {}", self.file)?;
        write!(out, "{table}")?;
        for (keys, said) in [
            (replaced, "in the input, but the profile's count"),
            (unused, "in the profile, but not in this model"),
        ] {
            if !keys.is_empty() {
                writeln!(out, "{said}: {}", keys.join(", "))?;
            }
        }
        Ok(())
    }
}
