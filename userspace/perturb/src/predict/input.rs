//! Reads the YAML of a model.

use std::error::Error;
use std::path::Path;

use serde::de::DeserializeOwned;

/// Values in a model's input at most: a program of a million operations has some ten million.
const MOST_NODES: usize = 100_000_000;

/// An input that cannot be used; its source says where and why.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InputError {
    /// It cannot be read.
    #[error("{file}")]
    Read { file: String, source: std::io::Error },
    /// It is not of the form.
    #[error("{file}")]
    Form {
        file: String,
        /// Where and why.
        source: Box<serde_saphyr::Error>,
    },
    /// The profile is none.
    #[error(transparent)]
    Profile(#[from] perturb_profile::LoadError),
    /// The model refuses it.
    #[error("{file}")]
    Model {
        file: String,
        /// Which value, and what to do.
        source: Box<dyn Error + Send + Sync>,
    },
}

impl InputError {
    /// A model's refusal of a file.
    pub(crate) fn model(path: &Path, source: impl Error + Send + Sync + 'static) -> Self {
        Self::Model {
            file: path.display().to_string(),
            source: Box::new(source),
        }
    }
}

/// Reads and parses a file.
///
/// # Errors
/// When it cannot be read or is not of the form; the error names line and column.
pub(crate) fn read<T: DeserializeOwned>(path: &Path) -> Result<T, InputError> {
    let file = path.display().to_string();
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(source) => return Err(InputError::Read { file, source }),
    };
    // The default limits guard against hostile configurations; this is the user's own program.
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_nodes: MOST_NODES,
            max_events: 2 * MOST_NODES,
        },
    };
    serde_saphyr::from_str_with_options(&text, options).map_err(|source| InputError::Form {
        file,
        source: Box::new(source),
    })
}
