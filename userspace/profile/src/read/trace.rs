//! Reads the trace of a server, and when a timeline starts.

use perturb_quantity::Probability;

use crate::findings::Findings;
use crate::keys;
use crate::read::{self, At, Fields};
use crate::recording::Format;
use crate::timeline::{Start, Trace, instant};

/// A trace of a server.
pub(crate) fn trace(at: At<'_>, findings: &mut Findings<'_>) -> Option<Trace> {
    let fields = Fields::of(at, &keys::TRACE, &[], findings)?;
    let file = fields.require("file", "file: lte.mm", findings, |at, f| {
        at.prose(keys::MAX_TEXT, f)
    });
    let written = fields.read("format", findings, read::variant::<Format>);
    let format = match &file {
        Some(file) if !fields.has("format") => {
            let format = Format::of(file);
            if format.is_none() {
                let (other, why) = ("format", "the name of the file does not say how it is written");
                fields.needs("file", other, why, findings);
            }
            format
        }
        _ => written,
    };
    let scale = fields.read("scale", findings, |at, f| at.quantity(keys::FACTOR, f));
    Some(Trace {
        file: file?,
        format: format?,
        at_end: fields.read("at_end", findings, read::variant),
        offset: fields
            .read("offset", findings, |at, f| at.quantity(keys::INSTANT, f))
            .unwrap_or_default(),
        scale: scale.unwrap_or(Probability::ONE),
    })
}

/// What the times of a timeline count from.
pub(crate) fn start(at: At<'_>, findings: &mut Findings<'_>) -> Option<Start> {
    let text = at.text("apply, first-packet or an instant", findings)?;
    let start = match text {
        "apply" => Some(Start::Apply),
        "first-packet" => Some(Start::FirstPacket),
        _ => instant::read(text).map(Start::At),
    };
    if start.is_none() {
        let why = "it is neither apply, first-packet nor an instant of UTC";
        at.unfit(
            why,
            "write for example 2026-11-24T12:00:00Z, with up to 9 decimals of a second",
            findings,
        );
    }
    start
}
