//! Trace files: how a path changed, as it was recorded or generated, to be played by a server.
//!
//! | format | what a line is |
//! |---|---|
//! | `mahimahi` | the millisecond of an opportunity to deliver one full packet (mm-link(1)) |
//! | `csv` | what holds from a time on, under a header that names columns and units |
//! | `theaterq` | `keep [us], latency [ns], rate [bit/s], loss [2^-32], limit [packets]`, or the longer form |
//! | `netem-trace` | JSON: the serialized models of rattan's netem-trace |
//!
//! Readers are pure: text in, [`Recording`] or the first mistake with line and column out. They take a million lines in
//! less than a second.

mod csv;
mod mahimahi;
mod netem;
mod theaterq;

use perturb_quantity::Duration;

pub(crate) use crate::timeline::lanes::Column;
pub(crate) use csv::heading;

/// Lines, opportunities or samples at most.
pub(crate) const MAX_SAMPLES: usize = 1_000_000;
/// The longest: days, and far from where ticks overflow.
pub(crate) const MAX_LENGTH: u64 = 1_000_000 * 1_000_000_000;

/// How the file is written.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, strum::AsRefStr, strum::EnumString, strum::VariantNames,
)]
#[strum(serialize_all = "kebab-case")]
pub enum Format {
    /// A millisecond per opportunity, as mm-link reads it.
    Mahimahi,
    /// Columns under a header with units.
    Csv,
    /// Lines as TheaterQ's character device takes them.
    #[strum(serialize = "theaterq")]
    TheaterQ,
    /// JSON of rattan's netem-trace.
    NetemTrace,
}

impl Format {
    /// What the name of `file` promises.
    pub fn of(file: &str) -> Option<Self> {
        match file.rsplit_once('.')?.1 {
            "mm" | "up" | "down" => Some(Self::Mahimahi),
            "csv" => Some(Self::Csv),
            "json" => Some(Self::NetemTrace),
            _ => None,
        }
    }
}

/// What a trace file says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Recording {
    /// What holds when.
    pub track: Track,
    /// When it ends, ns after its beginning.
    pub length: u64,
    /// Whether its format repeats it unless told otherwise.
    pub endless: bool,
}

/// What holds when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Track {
    /// Instants at which one full packet may leave, ns, ascending; several may be equal.
    Opportunities(Vec<u64>),
    /// Values that hold from an instant on.
    Samples {
        /// The instants, ns, ascending, the first 0.
        at: Vec<u64>,
        /// Values by column, one for each instant.
        columns: Vec<(Column, Vec<u64>)>,
    },
}

/// A mistake in a trace file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{line}:{column}: {what}")]
pub struct RecordingError {
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// What is wrong, and what to write.
    pub what: String,
}

impl RecordingError {
    fn new(line: usize, column: usize, what: impl Into<String>) -> Self {
        let what = what.into();
        Self { line, column, what }
    }

    /// At `part` of `line_text`, which is line `line`.
    fn at(line: usize, line_text: &str, part: &str, what: impl Into<String>) -> Self {
        let offset = (part.as_ptr() as usize).saturating_sub(line_text.as_ptr() as usize);
        let before = line_text.get(..offset).unwrap_or("");
        Self::new(line, before.chars().count() + 1, what)
    }
}

/// `text` for a message.
fn excerpt(text: &str) -> String {
    text.trim().chars().take(40).collect()
}

/// Reads a trace.
///
/// # Errors
/// The first mistake.
pub(crate) fn read(text: &str, format: Format) -> Result<Recording, RecordingError> {
    let recording = match format {
        Format::Mahimahi => mahimahi::read(text)?,
        Format::Csv => csv::read(text)?,
        Format::TheaterQ => theaterq::read(text)?,
        Format::NetemTrace => netem::read(text)?,
    };
    Ok(recording)
}

fn check_size(line: usize, samples: usize, at: u64) -> Result<(), RecordingError> {
    if samples > MAX_SAMPLES {
        let what = format!("the trace has more than {MAX_SAMPLES} entries; cut or thin it");
        return Err(RecordingError::new(line, 1, what));
    }
    if at > MAX_LENGTH {
        let max = Duration::from_nanos(MAX_LENGTH);
        return Err(RecordingError::new(
            line,
            1,
            format!("the trace is longer than {max}; cut it, or look at its unit of time"),
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
