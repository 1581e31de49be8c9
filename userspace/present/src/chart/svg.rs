//! Drawing: a chart to SVG text.
//!
//! Model: a canvas of 560 units' width, so that two stand side by side on a screen and the letters of one are still legible
//! on a telephone. The plot keeps its height. The legend is put below in rows, so that no number of series squeezes the
//! plot, or the names stand to its right, each at the end of its line.

use std::fmt::Write as _;

use super::{Chart, Point, Series, Stroke, scale::Scale};
use crate::{
    compact,
    markup::{LIGHT, Theme, both, escaped},
};

const WIDTH: f64 = 560.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 22.0;
const PLOT_HEIGHT: f64 = 270.0;
const LEGEND_ROW: f64 = 20.0;
/// Mean width of a character at the size of most texts; they are only placed by it, never cut.
const CHARACTER: f64 = 7.0;
/// Of a title and of a caption.
const TITLE_CHARACTER: f64 = 8.2;
const CAPTION_CHARACTER: f64 = 6.4;
const TITLE_LINE: f64 = 20.0;
const CAPTION_LINE: f64 = 16.0;
/// Between the end of a line and its name, and least between two names.
const NAME_GAP: f64 = 26.0;
const NAME_LINE: f64 = 15.0;

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

/// The lines of a text of so wide characters.
fn lines(text: &str, character: f64) -> Vec<String> {
    let most = ((WIDTH - LEFT - RIGHT) / character) as usize;
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= most => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

fn title(chart: &Chart) -> Vec<String> {
    lines(&chart.title, TITLE_CHARACTER)
}

fn caption(chart: &Chart) -> Vec<String> {
    lines(chart.caption.as_deref().unwrap_or_default(), CAPTION_CHARACTER)
}

fn top(chart: &Chart) -> f64 {
    24.0 + TITLE_LINE * title(chart).len() as f64 + CAPTION_LINE * caption(chart).len() as f64
}

/// Room to the right of the plot.
fn right(chart: &Chart) -> f64 {
    if !chart.names_at_ends {
        return RIGHT;
    }
    let longest = chart
        .series
        .iter()
        .map(|series| series.name.chars().count())
        .max();
    (NAME_GAP + CHARACTER * longest.unwrap_or(0) as f64 + 4.0).min(WIDTH / 2.0)
}

fn legend_top(chart: &Chart) -> f64 {
    top(chart) + PLOT_HEIGHT + 62.0
}

fn height(chart: &Chart) -> f64 {
    let below = legend(chart).len() as f64 * LEGEND_ROW;
    legend_top(chart)
        + if below > 0.0 {
            below + 4.0
        } else {
            4.0 - LEGEND_ROW
        }
}

pub(super) fn draw(chart: &Chart) -> String {
    let points = || chart.series.iter().flat_map(|series| &series.points);
    let x = chart.x.scale(points().map(|point| point.x));
    let y = chart.y.scale(points().flat_map(|point| {
        let (lower, upper) = point.interval.unwrap_or((point.y, point.y));
        [point.y, lower, upper]
    }));
    let (top, legend_top, height) = (top(chart), legend_top(chart), height(chart));
    let rows = legend(chart);
    let frame = Frame {
        x: &x,
        y: &y,
        top,
        width: WIDTH - LEFT - right(chart),
    };

    let mut out = String::new();
    head(&mut out, chart, height);
    axes(&mut out, chart, &frame);
    for (place, series) in chart.series.iter().enumerate() {
        let color = color(series, place);
        draw_series(&mut out, chart, &frame, series, color, place);
    }
    for (row, entries) in rows.iter().enumerate() {
        for &(place, left) in entries {
            let series = &chart.series[place];
            let color = color(series, place);
            let baseline = legend_top + row as f64 * LEGEND_ROW;
            key(&mut out, series, color, place, left, baseline);
        }
    }
    if chart.names_at_ends {
        names(&mut out, chart, &frame);
    }
    out.push_str("</svg>\n");
    out
}

fn color(series: &Series, place: usize) -> usize {
    series.color.unwrap_or(place) % LIGHT.series.len()
}

/// Where the plot lies on the canvas.
struct Frame<'a> {
    x: &'a Scale,
    y: &'a Scale,
    top: f64,
    width: f64,
}

impl Frame<'_> {
    fn across(&self, value: f64) -> f64 {
        LEFT + self.x.place(value) * self.width
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
         height=\"{height:.0}\" role=\"img\" font-family=\"system-ui, sans-serif\" font-size=\"13\">\n\
         <title>{title}</title>\n\
         <style>\n\
         .line{{fill:none;stroke-width:1.8;stroke-linejoin:round}}.band{{fill-opacity:.16;stroke:none}}\
         .dashed{{stroke-dasharray:6 4}}\n\
         {colors}\n\
         </style>\n\
         <rect class=\"page\" width=\"100%\" height=\"100%\"/>\n",
        title = escaped(&chart.title),
        colors = both(rules),
    );
    let mut y = 4.0;
    for line in title(chart) {
        y += TITLE_LINE;
        let _ = writeln!(
            out,
            "<text x=\"{LEFT}\" y=\"{y}\" font-size=\"15\" font-weight=\"600\">{}</text>",
            escaped(&line)
        );
    }
    for line in caption(chart) {
        y += CAPTION_LINE;
        let _ = writeln!(
            out,
            "<text x=\"{LEFT}\" y=\"{y}\" font-size=\"12\" opacity=\".75\">{}</text>",
            escaped(&line)
        );
    }
}

fn axes(out: &mut String, chart: &Chart, frame: &Frame<'_>) {
    let (right, bottom) = (LEFT + frame.width, frame.top + PLOT_HEIGHT);
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
    let mut taken = f64::NEG_INFINITY;
    for &tick in &frame.x.ticks {
        let (x, text) = (frame.across(tick), label(tick));
        let _ = writeln!(out, "<path class=\"axis\" d=\"M{x:.1} {bottom:.1}v5\"/>");
        let half = CHARACTER * text.chars().count() as f64 / 2.0;
        if x - half < taken {
            continue;
        }
        taken = x + half + CHARACTER;
        let _ = writeln!(
            out,
            "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{text}</text>",
            bottom + 19.0,
        );
    }
    let _ = writeln!(
        out,
        "<path class=\"axis\" fill=\"none\" d=\"M{LEFT} {:.1}V{bottom:.1}H{right}\"/>\
         <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\
         <text transform=\"translate(18 {:.1}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
        frame.top,
        LEFT + frame.width / 2.0,
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

/// The series' names beside the ends of their lines, as near to them as they can be without touching each other.
fn names(out: &mut String, chart: &Chart, frame: &Frame<'_>) {
    let ends = chart.series.iter().enumerate().filter_map(|(place, series)| {
        let end = series
            .points
            .iter()
            .max_by(|one, other| one.x.total_cmp(&other.x))?;
        Some((place, frame.across(end.x), frame.down(end.y)))
    });
    let mut ends: Vec<(usize, f64, f64)> = ends.collect();
    ends.sort_by(|one, other| one.2.total_cmp(&other.2));
    let mut heights: Vec<f64> = Vec::new();
    for (_, _, y) in &ends {
        let least = heights.last().map_or(frame.top, |above| above + NAME_LINE);
        heights.push(y.max(least));
    }
    let mut most = frame.top + PLOT_HEIGHT;
    for height in heights.iter_mut().rev() {
        *height = height.min(most);
        most = *height - NAME_LINE;
    }
    let left = LEFT + frame.width + NAME_GAP;
    for ((place, x, y), height) in ends.into_iter().zip(heights) {
        let series = &chart.series[place];
        let color = color(series, place);
        let _ = writeln!(
            out,
            "<path class=\"line s{color}\" style=\"stroke-width:.8\" d=\"M{:.1} {y:.1}L{:.1} {height:.1}\"/>\
             <text class=\"b{color}\" x=\"{left:.1}\" y=\"{:.1}\">{}</text>",
            x + 6.0,
            left - 4.0,
            height + 4.0,
            escaped(&series.name)
        );
    }
}

/// Rows of (series, left edge) that fit the canvas.
fn legend(chart: &Chart) -> Vec<Vec<(usize, f64)>> {
    let mut rows: Vec<Vec<(usize, f64)>> = Vec::new();
    if chart.names_at_ends {
        return rows;
    }
    let mut left = f64::INFINITY;
    let named = |entry: &&Series| !entry.name.is_empty();
    let entries = chart.series.iter().enumerate();
    for (place, entry) in entries.filter(|(_, entry)| named(entry)) {
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
