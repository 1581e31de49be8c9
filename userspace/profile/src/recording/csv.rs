//! Traces as tables: a header names the columns and their units, `time [s],latency [ms],bandwidth [Mbit/s],loss [%]`;
//! a row says what holds from its time on. A unit may stand in a cell instead. An empty cell is as the row above, a line
//! that begins with `#` a comment. Times count from the first row's, and the last row lasts as long as the one before it.
//! Values are rounded to the step that a profile tells apart.

use perturb_quantity::{Dimension, Duration, Probability, Quantity as _, Rate, Size, closest};

use super::{Column, Recording, RecordingError, Track, check_size, excerpt};

/// The columns: names, and the dimension of each.
const NAMES: [&str; 7] = ["time", "bandwidth", "latency", "gap", "loss", "jitter", "buffer"];

/// One that the header names.
struct Head {
    /// `None` for the time.
    column: Option<Column>,
    dimension: &'static Dimension,
    /// Smallest steps in one of the header's unit.
    factor: Option<f64>,
}

pub(super) fn read(text: &str) -> Result<Recording, RecordingError> {
    let mut lines = (1..)
        .zip(text.lines())
        .filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'));
    let Some((number, header)) = lines.next() else {
        return Err(RecordingError::new(
            1,
            1,
            "the trace is empty; begin with a header such as `time [s],latency [ms],bandwidth [Mbit/s]`",
        ));
    };
    let mut heads = header
        .split(',')
        .map(|cell| head(number, header, cell))
        .collect::<Result<Vec<_>, _>>()?;
    let Some(time) = heads.iter().position(|head| head.column.is_none()) else {
        return Err(RecordingError::new(
            number,
            1,
            "there is no column `time`; add it",
        ));
    };
    if heads.len() < 2 {
        return Err(RecordingError::new(
            number,
            1,
            format!("only the time is there; add one of {}", NAMES[1..].join(", ")),
        ));
    }
    let mut at: Vec<u64> = Vec::new();
    let mut columns: Vec<Vec<u64>> = heads.iter().map(|_| Vec::new()).collect();
    let mut first: Option<f64> = None;
    for (number, line) in lines {
        let mut cells = line.split(',');
        for (index, (head, values)) in heads.iter_mut().zip(&mut columns).enumerate() {
            let Some(cell) = cells.next() else {
                let what = format!(
                    "the line ends before its column {}; the header has more",
                    index + 1
                );
                return Err(RecordingError::new(number, line.chars().count() + 1, what));
            };
            if cell.trim().is_empty() {
                let Some(&above) = values.last().filter(|_| index != time) else {
                    let what = "there is no value; the first row needs all of them, each row its time";
                    return Err(RecordingError::at(number, line, cell, what));
                };
                values.push(above);
                continue;
            }
            let value = number_of(head, cell)
                .map_err(|what| RecordingError::at(number, line, cell.trim_start(), what))?;
            if index != time {
                values.push(value.round() as u64);
                continue;
            }
            // Subtracted first: the time of a day has more digits than a nanosecond of it can use.
            let begin = *first.get_or_insert(value);
            let since = value - begin;
            if since < 0.0 || at.last().is_some_and(|&last| since.round() as u64 <= last) {
                let what = "this time is not after that of the row above; sort the rows, one for each time";
                return Err(RecordingError::at(number, line, cell.trim_start(), what));
            }
            at.push(since.round() as u64);
        }
        if let Some(extra) = cells.next() {
            let what = format!("this is one column more than the {} of the header", heads.len());
            return Err(RecordingError::at(number, line, extra, what));
        }
        check_size(number, at.len(), at.last().copied().unwrap_or(0))?;
    }
    let columns = heads
        .iter()
        .zip(columns)
        .filter_map(|(head, values)| Some((head.column?, values)));
    let columns: Vec<(Column, Vec<u64>)> = columns.collect();
    finish(number, at, columns)
}

/// A recording whose last entry lasts as long as the one before it, or a second.
pub(super) fn finish(
    line: usize,
    at: Vec<u64>,
    columns: Vec<(Column, Vec<u64>)>,
) -> Result<Recording, RecordingError> {
    let length = match at.as_slice() {
        [] => {
            return Err(RecordingError::new(
                line,
                1,
                "no row follows the header; add some",
            ));
        }
        [.., before, last] => last + (last - before),
        [_] => 1_000_000_000,
    };
    Ok(Recording {
        track: Track::Samples { at, columns },
        length,
        endless: false,
    })
}

/// The name and the unit of a column: `latency [ms]`.
pub(crate) fn heading(text: &str) -> (&str, &str) {
    let end = text
        .find(|c: char| !c.is_ascii_alphabetic())
        .unwrap_or(text.len());
    let (name, unit) = text.split_at(end);
    (
        name,
        unit.trim_matches(|c: char| c.is_whitespace() || "_-([])".contains(c)),
    )
}

fn head(number: usize, line: &str, cell: &str) -> Result<Head, RecordingError> {
    let wrong = |what: String| Err(RecordingError::at(number, line, cell.trim_start(), what));
    let text = cell.trim();
    let (name, unit) = heading(text);
    if name.is_empty() {
        return wrong(format!(
            "`{}` is no column: the first line names them, such as `time [s],latency [ms]`; for a file of TheaterQ \
             write `format: theaterq`",
            excerpt(text)
        ));
    }
    let (column, dimension) = match name {
        "time" => (None, Duration::DIMENSION),
        "bandwidth" => (Some(Column::Bandwidth), Rate::DIMENSION),
        "latency" => (Some(Column::Latency), Duration::DIMENSION),
        "gap" => (Some(Column::Gap), Duration::DIMENSION),
        "loss" => (Some(Column::Loss), Probability::DIMENSION),
        "jitter" => (Some(Column::Jitter), Duration::DIMENSION),
        "buffer" if Size::DIMENSION.size_of(unit).is_some() => (Some(Column::BufferBytes), Size::DIMENSION),
        "buffer" => (Some(Column::BufferDelay), Duration::DIMENSION),
        other => {
            let meant = match other {
                "rate" | "throughput" => Some("bandwidth"),
                "delay" => Some("latency"),
                _ => closest(other, NAMES),
            };
            let meant = meant.map_or(String::new(), |name| format!("; did you mean `{name}`?"));
            return wrong(format!(
                "`{}` is no column; the columns are {}{meant}",
                excerpt(name),
                NAMES.join(", ")
            ));
        }
    };
    let factor = dimension.size_of(unit).map(|size| size as f64);
    if factor.is_none() && !unit.is_empty() {
        return wrong(format!("`{}` is no unit here; write {dimension}", excerpt(unit)));
    }
    Ok(Head {
        column,
        dimension,
        factor,
    })
}

/// The value of a cell in smallest steps.
fn number_of(head: &Head, cell: &str) -> Result<f64, String> {
    let cell = cell.trim();
    if let (Some(factor), Ok(number)) = (head.factor, cell.parse::<f64>())
        && number >= 0.0
    {
        return in_range(head, number * factor);
    }
    if head.column == Some(Column::Bandwidth) && cell == "unlimited" {
        return Ok(Column::UNLIMITED as f64);
    }
    let end = cell
        .find(|c: char| c.is_ascii_alphabetic() && !"eE".contains(c) || c == '%')
        .unwrap_or(cell.len());
    let (number, unit) = cell.split_at(end);
    let number = number.trim().parse::<f64>().ok().filter(|&number| number >= 0.0);
    match (number, head.dimension.size_of(unit)) {
        (Some(number), Some(size)) => in_range(head, number * size as f64),
        (Some(_), None) if unit.is_empty() => Err(format!(
            "`{}` has no unit, and neither has its column; write it into the header: {}",
            excerpt(cell),
            head.dimension
        )),
        _ => Err(format!("`{}` is not {}", excerpt(cell), head.dimension)),
    }
}

fn in_range(head: &Head, steps: f64) -> Result<f64, String> {
    let all = Probability::ONE.billionths() as f64;
    if head.column == Some(Column::Loss) && steps > all {
        return Err("a share is at most 100%".to_owned());
    }
    // Beyond this no column has a meaning; it is where whole numbers end in a f64.
    const MOST: f64 = 9.0e18;
    if steps.is_finite() && steps < MOST {
        Ok(steps)
    } else {
        Err("the number is too large; look at its unit".to_owned())
    }
}
