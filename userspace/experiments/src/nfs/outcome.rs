//! What a run of a load says beside its figures.

use perturb_present::{bar, measured};
use perturb_workloads::nfs::{
    load::{Outcome, Progress},
    record::CutShort,
};

/// The generator's own lateness is worth a warning from this share of the response time on.
const LATE_SHARE: f64 = 0.5;

/// Whether calls were sent so late, 1 % of them by at least `late_ms`, that response times of this mean say little.
#[must_use]
pub fn is_late(late_ms: f64, mean_ms: f64) -> bool {
    late_ms > LATE_SHARE * mean_ms
}

/// Says what the figures do not. Whether the run was whole, and its data set is gone.
pub fn is_whole(outcome: &Outcome) -> bool {
    let mut whole = true;
    for example in &outcome.examples {
        log::warn!("calls failed, for example {example}");
    }
    if let (Some(late), Some(mean)) = (outcome.record.late_p99_ms, outcome.record.mean_ms)
        && is_late(late, mean)
    {
        log::warn!(
            "1 % of the calls were sent more than {} ms late, of a mean response time of {} ms: this \
             machine is busy or the rate too high for it; use a quieter one, more --connections, or less load",
            measured(late),
            measured(mean)
        );
    }
    match outcome.record.cut_short {
        Some(CutShort::Stopped) => {
            log::info!("stopped after {:.1} s of the run", outcome.record.duration_s);
            whole = false;
        }
        Some(CutShort::ServerGone) => {
            log::info!(
                "the server stopped answering; the figures are of the {:.1} s before that was clear",
                outcome.record.duration_s
            );
            whole = false;
        }
        None => {}
    }
    if outcome.record.operations.is_empty() {
        log::info!("nothing was answered in the run; is the server still there?");
        whole = false;
    }
    if let Some(error) = &outcome.left_behind {
        log::info!("the data set could not be removed, and is removed by the next run with --reuse: {error}");
        whole = false;
    }
    whole
}

/// What the live line says.
#[must_use]
pub fn said(progress: Progress) -> String {
    match progress {
        Progress::Making { done, of } => format!("making files: {done} of {of}"),
        Progress::Running {
            elapsed,
            of,
            answered,
            failed,
        } => format!(
            "{} {answered} answered, {failed} failed, {} s left",
            bar(elapsed.as_secs_f64() / of.as_secs_f64()),
            of.saturating_sub(elapsed).as_secs()
        ),
        Progress::Removing => "removing files".into(),
    }
}
