//! Drawing: a chart to SVG text.
//!
//! Model: a fixed canvas of 760 units' width; the plot keeps its size and the legend is put below
//! in rows, so that no number of series squeezes the plot.

use std::fmt::Write as _;

use super::{Chart, Point, Series, Stroke, scale::Scale};
use crate::{
    compact,
    markup::{LIGHT, Theme, both, escaped},
};

const WIDTH: f64 = 760.0;
const LEFT: f64 = 72.0;
const RIGHT: f64 = 24.0;
const PLOT_HEIGHT: f64 = 320.0;
const PLOT_WIDTH: f64 = WIDTH - LEFT - RIGHT;
const LEGEND_ROW: f64 = 20.0;
/// Mean width of a character at the legend's size; labels are only placed by it, never cut.
const CHARACTER: f64 = 6.6;

/// Charts below each other in one document.
pub(super) fn stack(charts: &[Chart]) -> String {
    let mut y = 0.0;
    let mut inner = String::new();
    for chart in charts {
        // A chart inside of another document has a place in it.
        inner.push_str(&draw(chart).replacen("<svg ", &format!("<svg y=\"{y:.0}\" "), 1));
        y += height(chart);
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {y:.0}\" width=\"{WIDTH}\" height=\"{y:.0}\">\n\
         {inner}</svg>\n"
    )
}

fn top(chart: &Chart) -> f64 {
    if chart.caption.is_some() { 60.0 } else { 44.0 }
}

fn legend_top(chart: &Chart) -> f64 {
    top(chart) + PLOT_HEIGHT + 62.0
}

fn height(chart: &Chart) -> f64 {
    legend_top(chart) + legend(&chart.series).len() as f64 * LEGEND_ROW + 4.0
}

pub(super) fn draw(chart: &Chart) -> String {
    let points = || chart.series.iter().flat_map(|series| &series.points);
    let x = chart.x.scale(points().map(|point| point.x));
    let y = chart.y.scale(points().flat_map(|point| {
        let (lower, upper) = point.interval.unwrap_or((point.y, point.y));
        [point.y, lower, upper]
    }));
    let (top, legend_top, height) = (top(chart), legend_top(chart), height(chart));
    let rows = legend(&chart.series);
    let frame = Frame { x: &x, y: &y, top };

    let mut out = String::new();
    head(&mut out, chart, height);
    axes(&mut out, chart, &frame);
    for (place, series) in chart.series.iter().enumerate() {
        let color = series.color.unwrap_or(place) % LIGHT.series.len();
        draw_series(&mut out, chart, &frame, series, color, place);
    }
    for (row, entries) in rows.iter().enumerate() {
        for &(place, left) in entries {
            let series = &chart.series[place];
            let color = series.color.unwrap_or(place) % LIGHT.series.len();
            let baseline = legend_top + row as f64 * LEGEND_ROW;
            key(&mut out, series, color, place, left, baseline);
        }
    }
    out.push_str("</svg>\n");
    out
}

/// Where the plot lies on the canvas.
struct Frame<'a> {
    x: &'a Scale,
    y: &'a Scale,
    top: f64,
}

impl Frame<'_> {
    fn across(&self, value: f64) -> f64 {
        LEFT + self.x.place(value) * PLOT_WIDTH
    }

    fn down(&self, value: f64) -> f64 {
        self.top + (1.0 - self.y.place(value)) * PLOT_HEIGHT
    }
}

fn rules(theme: &Theme) -> String {
    let Theme { page, ink, faint, .. } = theme;
    let mut css =
        format!(".page{{fill:{page}}}text{{fill:{ink}}}.grid{{stroke:{faint}}}.axis{{stroke:{ink}}}");
    for (index, color) in theme.series.iter().enumerate() {
        let _ = write!(
            css,
            ".s{index}{{stroke:{color}}}.f{index}{{fill:{color};stroke:{color}}}.b{index}{{fill:{color}}}"
        );
    }
    css
}

fn head(out: &mut String, chart: &Chart, height: f64) {
    let _ = write!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height:.0}\" width=\"{WIDTH}\" \
         height=\"{height:.0}\" role=\"img\" font-family=\"system-ui, sans-serif\" font-size=\"12\">\n\
         <title>{title}</title>\n\
         <style>\n\
         .line{{fill:none;stroke-width:1.8;stroke-linejoin:round}}.band{{fill-opacity:.16;stroke:none}}\
         .dashed{{stroke-dasharray:6 4}}\n\
         {colors}\n\
         </style>\n\
         <rect class=\"page\" width=\"100%\" height=\"100%\"/>\n\
         <text x=\"{LEFT}\" y=\"24\" font-size=\"16\" font-weight=\"600\">{title}</text>\n",
        title = escaped(&chart.title),
        colors = both(rules),
    );
    if let Some(caption) = &chart.caption {
        let _ = writeln!(
            out,
            "<text x=\"{LEFT}\" y=\"43\" font-size=\"11\" opacity=\".75\">{}</text>",
            escaped(caption)
        );
    }
}

fn axes(out: &mut String, chart: &Chart, frame: &Frame<'_>) {
    let (right, bottom) = (LEFT + PLOT_WIDTH, frame.top + PLOT_HEIGHT);
    for &tick in &frame.y.ticks {
        let y = frame.down(tick);
        let _ = writeln!(
            out,
            "<path class=\"grid\" d=\"M{LEFT} {y:.1}H{right}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 8.0,
            y + 4.0,
            label(tick)
        );
    }
    for &tick in &frame.x.ticks {
        let x = frame.across(tick);
        let _ = writeln!(
            out,
            "<path class=\"axis\" d=\"M{x:.1} {bottom:.1}v5\"/>\
             <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            bottom + 19.0,
            label(tick)
        );
    }
    let _ = writeln!(
        out,
        "<path class=\"axis\" fill=\"none\" d=\"M{LEFT} {:.1}V{bottom:.1}H{right}\"/>\
         <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\
         <text transform=\"translate(18 {:.1}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
        frame.top,
        LEFT + PLOT_WIDTH / 2.0,
        bottom + 38.0,
        escaped(&chart.x.title()),
        frame.top + PLOT_HEIGHT / 2.0,
        escaped(&chart.y.title()),
    );
}

fn draw_series(
    out: &mut String,
    chart: &Chart,
    frame: &Frame<'_>,
    series: &Series,
    color: usize,
    place: usize,
) {
    let at = |x: f64, y: f64| format!("{:.1},{:.1}", frame.across(x), frame.down(y));
    let band: Vec<(&Point, (f64, f64))> = series
        .points
        .iter()
        .filter_map(|point| point.interval.map(|interval| (point, interval)))
        .collect();
    out.push_str("<g>\n");
    match band.as_slice() {
        [] => {}
        [(point, (lower, upper))] => {
            // One interval has no area: an error bar instead.
            let _ = writeln!(
                out,
                "<path class=\"s{color}\" d=\"M{}L{}\"/>",
                at(point.x, *lower),
                at(point.x, *upper)
            );
        }
        many => {
            let upper = many.iter().map(|(point, (_, upper))| at(point.x, *upper));
            let lower = many.iter().rev().map(|(point, (lower, _))| at(point.x, *lower));
            let outline: Vec<String> = upper.chain(lower).collect();
            let _ = writeln!(
                out,
                "<polygon class=\"band b{color}\" points=\"{}\"/>",
                outline.join(" ")
            );
        }
    }
    if series.stroke != Stroke::None && series.points.len() > 1 {
        let path: Vec<String> = series.points.iter().map(|point| at(point.x, point.y)).collect();
        let dashed = if series.stroke == Stroke::Dashed {
            " dashed"
        } else {
            ""
        };
        let _ = writeln!(
            out,
            "<polyline class=\"line s{color}{dashed}\" points=\"{}\"/>",
            path.join(" ")
        );
    }
    if series.markers || series.points.len() == 1 {
        for point in &series.points {
            let tip = format!(
                "{}: {} {}, {} {}",
                series.name,
                label(point.x),
                chart.x.unit(),
                label(point.y),
                chart.y.unit()
            );
            marker(
                out,
                place,
                color,
                frame.across(point.x),
                frame.down(point.y),
                &tip,
            );
        }
    }
    out.push_str("</g>\n");
}

/// A number beside an axis.
fn label(value: f64) -> String {
    compact(value, 4)
}

/// A shape per place, so that series differ without their colors.
fn marker(out: &mut String, place: usize, color: usize, x: f64, y: f64, tip: &str) {
    let shape = match place % 5 {
        0 => format!("M{:.1} {y:.1}a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0 -7 0z", x - 3.5),
        1 => format!("M{:.1} {:.1}h6.4v6.4h-6.4z", x - 3.2, y - 3.2),
        2 => format!("M{x:.1} {:.1}l4.3 7.4h-8.6z", y - 4.6),
        3 => format!("M{x:.1} {:.1}l4.6 4.6l-4.6 4.6l-4.6 -4.6z", y - 4.6),
        _ => format!("M{x:.1} {:.1}l4.3 -7.4h-8.6z", y + 4.6),
    };
    let _ = writeln!(
        out,
        "<path class=\"f{color}\" d=\"{shape}\"><title>{}</title></path>",
        escaped(tip)
    );
}

/// Rows of (series, left edge) that fit the canvas.
fn legend(series: &[Series]) -> Vec<Vec<(usize, f64)>> {
    let mut rows: Vec<Vec<(usize, f64)>> = Vec::new();
    let mut left = f64::INFINITY;
    for (place, entry) in series.iter().enumerate() {
        let width = 48.0 + CHARACTER * entry.name.chars().count() as f64;
        if left + width > WIDTH - RIGHT {
            rows.push(Vec::new());
            left = LEFT;
        }
        if let Some(row) = rows.last_mut() {
            row.push((place, left));
        }
        left += width;
    }
    rows
}

fn key(out: &mut String, series: &Series, color: usize, place: usize, left: f64, baseline: f64) {
    let middle = baseline - 4.0;
    if series.stroke != Stroke::None {
        let dashed = if series.stroke == Stroke::Dashed {
            " dashed"
        } else {
            ""
        };
        let _ = writeln!(
            out,
            "<path class=\"line s{color}{dashed}\" d=\"M{left:.1} {middle:.1}h24\"/>"
        );
    }
    if series.markers {
        marker(out, place, color, left + 12.0, middle, &series.name);
    }
    let _ = writeln!(
        out,
        "<text x=\"{:.1}\" y=\"{baseline:.1}\">{}</text>",
        left + 30.0,
        escaped(&series.name)
    );
}
