//! mahimahi's packet-delivery traces: each line is the millisecond of an opportunity to deliver one packet of the MTU;
//! several lines may be equal. After the last one it begins anew (mm-link(1); `LinkQueue` in link_queue.cc).

use super::{Recording, RecordingError, Track, check_size, excerpt};

const MILLISECOND: u64 = 1_000_000;

pub(super) fn read(text: &str) -> Result<Recording, RecordingError> {
    let mut opportunities: Vec<u64> = Vec::with_capacity(text.len() / 4);
    for (number, line) in (1..).zip(text.lines()) {
        let word = line.trim();
        let wrong = |what: String| Err(RecordingError::at(number, line, word, what));
        let plain = !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
        let Some(at) = plain.then(|| word.parse::<u64>().ok()).flatten() else {
            return wrong(format!(
                "`{}` is not a whole number of milliseconds, which each line of a mahimahi trace is",
                excerpt(word)
            ));
        };
        let at = at.saturating_mul(MILLISECOND);
        if let Some(&last) = opportunities.last()
            && at < last
        {
            let before = last / MILLISECOND;
            return wrong(format!(
                "{word} is before {before}, the line above; sort the lines"
            ));
        }
        opportunities.push(at);
        check_size(number, opportunities.len(), at)?;
    }
    let Some(&length) = opportunities.last() else {
        return Err(RecordingError::new(
            1,
            1,
            "the trace is empty; write a millisecond on each line",
        ));
    };
    if length == 0 {
        return Err(RecordingError::new(
            opportunities.len(),
            1,
            "the trace ends at 0 ms; it must last longer",
        ));
    }
    Ok(Recording {
        track: Track::Opportunities(opportunities),
        length,
        endless: true,
    })
}
