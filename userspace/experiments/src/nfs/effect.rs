//! What a varied knob does to a response-time curve: lines over its levels, and a chart of them.
//!
//! Model (Martin 1999, sections 5.2 and 5.3): the base response time rises with the one-way latency by 2 us per us, once
//! there and once back, in the queueing model, and by 3 in his measurement; the peak falls with overhead as
//! 1/(Serv + n o), so its inverse is a line whose intercept is the service time and whose slope the number n
//! of overheads that a server pays per operation, 2.4 in his traffic. A gap does to packets what overhead does,
//! elsewhere. Bandwidth has no line: nothing happens until the traffic needs more of it.

use perturb_present::{
    chart::{Axis, Chart, Series, Stroke},
    measured,
};
use perturb_profile::Knob;
use perturb_stats::Line;
use perturb_workloads::nfs::client::Transport;
use serde::Serialize;

use super::measure::Added;

/// One curve, as far as a knob may change it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Point {
    /// The knob.
    pub(super) added: Added,
    /// Response time at the lowest level.
    pub(super) base_ms: f64,
    /// Greatest throughput.
    pub(super) peak_op_s: f64,
}

/// A line over the levels of the varied knob.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Fit {
    /// What carried the calls, if there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    transport: Option<Transport>,
    /// What is over what, with units.
    what: &'static str,
    slope: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    slope_error: Option<f64>,
    intercept: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    r_squared: Option<f64>,
    points: usize,
}

/// What may be on the vertical axis.
#[derive(Clone, Copy)]
struct Response {
    what: &'static str,
    title: &'static str,
    axis: &'static str,
    knob: Knob,
    response: fn(&Point) -> f64,
}

const RESPONSES: [Response; 4] = [
    Response {
        what: "base response time in us over one-way latency in us",
        title: "Rise of the base response time",
        axis: "added one-way latency",
        knob: Knob::Latency,
        response: |point| 1e3 * point.base_ms,
    },
    Response {
        what: "1/peak in us per operation over overhead in us",
        title: "Rise of the time per operation at the peak",
        axis: "added overhead",
        knob: Knob::Overhead,
        response: |point| 1e6 / point.peak_op_s,
    },
    Response {
        what: "base response time in us over overhead in us",
        title: "Rise of the base response time",
        axis: "added overhead",
        knob: Knob::Overhead,
        response: |point| 1e3 * point.base_ms,
    },
    Response {
        what: "1/peak in us per operation over gap in us",
        title: "Rise of the time per operation at the peak",
        axis: "added gap",
        knob: Knob::Gap,
        response: |point| 1e6 / point.peak_op_s,
    },
];

impl Response {
    fn of(&self, points: &[Point]) -> Vec<(f64, f64)> {
        let turned = |point: &Point| {
            let (_, value) = point.added.filter(|(knob, _)| *knob == self.knob)?;
            Some((value, (self.response)(point)))
        };
        points.iter().filter_map(turned).collect()
    }
}

/// The lines that these curves allow.
pub(super) fn fits(points: &[Point], transport: Option<Transport>) -> Vec<Fit> {
    RESPONSES
        .iter()
        .filter_map(|response| {
            let line = Line::fit(&response.of(points)).ok()?;
            Some(Fit {
                transport,
                what: response.what,
                slope: line.slope,
                slope_error: line.slope_error,
                intercept: line.intercept,
                r_squared: line.r_squared,
                points: line.points,
            })
        })
        .collect()
}

/// The first of the effects that a group of curves shows, that of each group and of published ones, each over its least
/// level: machines that differ in speed are compared by what a knob adds.
pub(super) fn chart(groups: &[(String, &[Point])], published: Option<(&str, &[Point])>) -> Option<Chart> {
    let shows = |response: &&Response, points: &[Point]| Line::fit(&response.of(points)).is_ok();
    let response = RESPONSES
        .iter()
        .find(|response| groups.iter().any(|(_, points)| shows(response, points)))?;
    let mut chart = Chart::new(
        response.title,
        Axis::new(response.axis, "us"),
        Axis::new("rise", "us"),
    );
    let here = groups.iter().map(|(name, points)| (name.as_str(), *points));
    let all = here.chain(published);
    for (color, (name, points)) in all.enumerate() {
        let mut points = response.of(points);
        points.sort_by(|left, right| left.0.total_cmp(&right.0));
        let Some(&(least, at_least)) = points.first() else {
            continue;
        };
        for point in &mut points {
            *point = (point.0 - least, point.1 - at_least);
        }
        let line = Line::fit(&points).ok();
        let series = Series::new(name, points.clone())
            .stroke(Stroke::None)
            .color(color);
        chart = chart.series(series);
        if let (Some(line), Some(last)) = (line, points.last()) {
            let ends = [(0.0, line.at(0.0)), (last.0, line.at(last.0))];
            let name = format!("{name}, line of slope {:.2}", line.slope);
            let stroke = if color < groups.len() {
                Stroke::Solid
            } else {
                Stroke::Dashed
            };
            let series = Series::new(name, ends).stroke(stroke).without_markers();
            chart = chart.series(series.color(color));
        }
    }
    Some(chart)
}

impl std::fmt::Display for Fit {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(transport) = self.transport {
            write!(formatter, "{transport}: ")?;
        }
        write!(
            formatter,
            "{}: slope {}{}, intercept {}, r² {} ({} points)",
            self.what,
            measured(self.slope),
            self.slope_error
                .map_or(String::new(), |error| format!(" ± {}", measured(error))),
            measured(self.intercept),
            self.r_squared
                .map_or("-".into(), |r_squared| format!("{r_squared:.4}")),
            self.points
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1/(Serv + 2.4 o) by construction.
    fn servers() -> Vec<Point> {
        [0.0, 50.0, 100.0]
            .map(|us| Point {
                added: Some((Knob::Overhead, us)),
                base_ms: 3.0 + 4.8e-3 * us,
                peak_op_s: 1e6 / (500.0 + 2.4 * us),
            })
            .to_vec()
    }

    #[test]
    fn the_inverse_of_the_peak_is_a_line() {
        let fits = fits(&servers(), None);
        assert_eq!(fits.len(), 2);
        assert!((fits[0].slope - 2.4).abs() < 1e-9 && (fits[0].intercept - 500.0).abs() < 1e-6);
        assert!((fits[1].slope - 4.8).abs() < 1e-9);
        assert!(fits[0].to_string().contains("slope 2.400"));
    }

    #[test]
    fn machines_are_compared_by_what_is_added() {
        let other: Vec<Point> = servers()
            .into_iter()
            .map(|point| Point {
                peak_op_s: 0.5 * point.peak_op_s,
                ..point
            })
            .collect();
        let servers = servers();
        let svg = chart(
            &[("here".into(), servers.as_slice())],
            Some(("published", &other)),
        )
        .unwrap()
        .to_svg()
        .unwrap();
        assert!(svg.contains("here, line of slope 2.40") && svg.contains("published, line of slope 4.80"));
        assert!(chart(&[], None).is_none());
    }
}
