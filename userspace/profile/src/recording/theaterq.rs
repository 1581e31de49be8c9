//! TheaterQ's trace files (Ottens et al., arXiv 2510.27057; README of cs7org/TheaterQ), numbers without a header:
//!
//! * `keep [us], latency [ns], rate [bit/s], loss [2^-32], limit`
//! * `keep, latency, jitter [ns], rate, loss, limit, duplicates [2^-32], their delay [ns], route`
//!
//! A rate of 0 is no limit. A limit counts packets, each taken for a full frame. Lines that begin otherwise than with a
//! digit are skipped. Duplicates are refused: a server has `duplicate`. Routes are ignored: packets keep their order.

use perturb_quantity::Probability;

use super::{Column, Recording, RecordingError, Track, check_size, excerpt};
use crate::keys::FRAME;

const SHORT: usize = 5;
const LONG: [usize; 2] = [8, 9];

pub(super) fn read(text: &str) -> Result<Recording, RecordingError> {
    let mut at: Vec<u64> = Vec::new();
    let mut length: u64 = 0;
    let kinds = [
        Column::Latency,
        Column::Bandwidth,
        Column::Loss,
        Column::BufferBytes,
        Column::Jitter,
    ];
    let mut columns: [Vec<u64>; 5] = Default::default();
    let mut fields = 0;
    for (number, line) in (1..).zip(text.lines()) {
        if !line.starts_with(|c: char| c.is_ascii_digit()) {
            continue;
        }
        let mut values = [0u64; 9];
        let mut count = 0;
        for cell in line.split(',') {
            let place = values.get_mut(count).ok_or_else(|| {
                RecordingError::at(
                    number,
                    line,
                    cell,
                    "there are more than the 9 numbers of TheaterQ's longer form",
                )
            })?;
            *place = cell.trim().parse().map_err(|_| {
                let what = format!("`{}` is not a whole number", excerpt(cell));
                RecordingError::at(number, line, cell.trim_start(), what)
            })?;
            count += 1;
        }
        if count != SHORT && !LONG.contains(&count) {
            let what = format!("the line has {count} numbers; TheaterQ's have 5, or 8 or 9");
            return Err(RecordingError::new(number, 1, what));
        }
        if fields != 0 && count != fields {
            let what = format!("the line has {count} numbers, and those before it {fields}");
            return Err(RecordingError::new(number, 1, what));
        }
        fields = count;
        let [keep, latency, rest @ ..] = values;
        let (jitter, [rate, loss, limit, duplicates, ..]) = match count {
            SHORT => (0, [rest[0], rest[1], rest[2], 0, 0]),
            _ => (rest[0], [rest[1], rest[2], rest[3], rest[4], rest[5]]),
        };
        if keep == 0 {
            return Err(RecordingError::new(
                number,
                1,
                "an entry is kept for 0 us; remove it",
            ));
        }
        if duplicates != 0 {
            let what =
                "the entry duplicates packets, which no trace does; use `duplicate` of a server, and 0 here";
            return Err(RecordingError::new(number, 1, what));
        }
        if loss > u64::from(u32::MAX) {
            let what = format!("{loss} is more than 2^32 - 1, which is a loss of 100%");
            return Err(RecordingError::new(number, 1, what));
        }
        let share = u128::from(loss) * u128::from(Probability::ONE.billionths());
        let loss = (share + u128::from(u32::MAX) / 2) / u128::from(u32::MAX);
        let entry = [
            latency,
            if rate == 0 { Column::UNLIMITED } else { rate },
            loss as u64,
            limit.saturating_mul(FRAME.bytes()),
            jitter,
        ];
        for (column, value) in columns.iter_mut().zip(entry) {
            column.push(value);
        }
        at.push(length);
        length = length.saturating_add(keep.saturating_mul(1000));
        check_size(number, at.len(), length)?;
    }
    if at.is_empty() {
        return Err(RecordingError::new(
            1,
            1,
            "no line begins with a number; the trace is empty",
        ));
    }
    let columns = kinds.into_iter().zip(columns);
    // Without jitter in any line there is no such column.
    let columns =
        columns.filter(|(kind, values)| *kind != Column::Jitter || values.iter().any(|&one| one != 0));
    Ok(Recording {
        track: Track::Samples {
            at,
            columns: columns.collect(),
        },
        length,
        endless: false,
    })
}
