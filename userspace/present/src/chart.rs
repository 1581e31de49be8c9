//! Line charts as self-contained SVG, readable on a light and on a dark page.
//!
//! Model: a [`Chart`] has two axes with units, linear or logarithmic, and series of points. Each
//! series may have a confidence band, be drawn with or without markers, dashed or solid (a model
//! beside a measurement). Color is never the only difference between two series: markers change
//! their shape too. `prefers-color-scheme` switches the colors; there is no
//! script, no font and no reference to anything outside of the file.
//! What is lacking: bars, second axes, interaction (each marker has a tooltip).

mod scale;
mod svg;

pub use scale::{Axis, Kind};

/// A point of a series, with its interval if it has one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Horizontal value.
    pub x: f64,
    /// Vertical value.
    pub y: f64,
    /// Lower and upper end of the interval of `y`.
    pub interval: Option<(f64, f64)>,
}

impl From<(f64, f64)> for Point {
    fn from((x, y): (f64, f64)) -> Self {
        Self { x, y, interval: None }
    }
}

/// How the points of a series are joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stroke {
    /// A solid line: what was measured.
    Solid,
    /// A dashed line: what a model says, or what somebody else published.
    Dashed,
    /// No line: points only.
    None,
}

/// One line of a chart.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    name: String,
    points: Vec<Point>,
    stroke: Stroke,
    markers: bool,
    color: Option<usize>,
}

impl Series {
    /// Points joined by a solid line with markers, in the order given.
    pub fn new<P: Into<Point>>(name: impl Into<String>, points: impl IntoIterator<Item = P>) -> Self {
        Self {
            name: name.into(),
            points: points.into_iter().map(Into::into).collect(),
            stroke: Stroke::Solid,
            markers: true,
            color: None,
        }
    }

    /// Sets how the points are joined.
    #[must_use]
    pub fn stroke(mut self, stroke: Stroke) -> Self {
        self.stroke = stroke;
        self
    }

    /// Leaves the markers out: for curves that are computed, not observed.
    #[must_use]
    pub fn without_markers(mut self) -> Self {
        self.markers = false;
        self
    }

    /// Uses the color of the palette's place `index` (it wraps), so that a model can share the color
    /// of its measurement. Without it every series takes the next color.
    #[must_use]
    pub fn color(mut self, index: usize) -> Self {
        self.color = Some(index);
        self
    }
}

/// A chart to be drawn.
#[derive(Clone, Debug, PartialEq)]
pub struct Chart {
    title: String,
    caption: Option<String>,
    x: Axis,
    y: Axis,
    series: Vec<Series>,
    names_at_ends: bool,
}

/// Why a chart cannot be drawn.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ChartError {
    /// There is nothing to draw.
    #[error("chart `{0}` has no points; add a series with at least one")]
    Empty(String),
    /// A coordinate is NaN or infinite.
    #[error("series `{series}`, point {index}: {value} cannot be drawn; leave points without a value out")]
    NotFinite {
        /// Name of the series.
        series: String,
        /// Place in the series, from 0.
        index: usize,
        /// The coordinate.
        value: f64,
    },
    /// A logarithmic axis has no place for it.
    #[error("series `{series}`, point {index}: {value} has no place on a logarithmic axis; use a linear one")]
    NotPositive {
        /// Name of the series.
        series: String,
        /// Place in the series, from 0.
        index: usize,
        /// The coordinate.
        value: f64,
    },
}

impl Chart {
    /// A chart without series.
    pub fn new(title: impl Into<String>, x: Axis, y: Axis) -> Self {
        Self {
            title: title.into(),
            caption: None,
            x,
            y,
            series: Vec::new(),
            names_at_ends: false,
        }
    }

    /// A line of small print under the title: the command, the machine, the source.
    #[must_use]
    pub fn caption(mut self, caption: impl Into<String>) -> Self {
        self.caption = Some(caption.into());
        self
    }

    /// Adds a series; the legend lists them in this order.
    #[must_use]
    pub fn series(mut self, series: Series) -> Self {
        self.series.push(series);
        self
    }

    /// Puts each series' name beside the end of its line instead of into a legend: for many lines, whose colors repeat.
    #[must_use]
    pub fn names_at_ends(mut self) -> Self {
        self.names_at_ends = true;
        self
    }

    /// The chart as an SVG document.
    ///
    /// # Errors
    /// If it has no points, or one that its axes have no place for.
    pub fn to_svg(&self) -> Result<String, ChartError> {
        self.check()?;
        Ok(svg::draw(self))
    }

    /// Several charts below each other as one SVG document.
    ///
    /// # Errors
    /// If one of them cannot be drawn.
    pub fn stacked(charts: &[Self]) -> Result<String, ChartError> {
        charts.iter().try_for_each(Self::check)?;
        Ok(svg::stack(charts))
    }

    fn check(&self) -> Result<(), ChartError> {
        if self.series.iter().all(|series| series.points.is_empty()) {
            return Err(ChartError::Empty(self.title.clone()));
        }
        for series in &self.series {
            for (index, point) in series.points.iter().enumerate() {
                let (lower, upper) = point.interval.unwrap_or((point.y, point.y));
                for (axis, value) in [
                    (&self.x, point.x),
                    (&self.y, point.y),
                    (&self.y, lower),
                    (&self.y, upper),
                ] {
                    let series = || series.name.clone();
                    if !value.is_finite() {
                        return Err(ChartError::NotFinite {
                            series: series(),
                            index,
                            value,
                        });
                    }
                    // The end of an interval is clipped to the axis, a point must be on it.
                    let is_point = value == point.x || value == point.y;
                    if axis.kind_of() == Kind::Logarithmic && value <= 0.0 && is_point {
                        return Err(ChartError::NotPositive {
                            series: series(),
                            index,
                            value,
                        });
                    }
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(kind: Kind) -> Chart {
        Chart::new(
            "Response <time>",
            Axis::new("throughput", "op/s"),
            Axis::new("response", "ms").kind(kind),
        )
    }

    #[test]
    fn draws_every_part() {
        let svg = chart(Kind::Linear)
            .caption("a & b")
            .series(Series::new(
                "measured",
                [(100.0, 3.0), (200.0, 4.0)].map(|(x, y)| Point {
                    x,
                    y,
                    interval: Some((y - 1.0, y + 1.0)),
                }),
            ))
            .series(
                Series::new("model", [(100.0, 2.5), (200.0, 4.5)])
                    .stroke(Stroke::Dashed)
                    .without_markers(),
            )
            .to_svg()
            .unwrap();
        assert!(svg.contains("prefers-color-scheme: dark"));
        assert!(svg.contains("Response &lt;time&gt;") && svg.contains("a &amp; b"));
        assert!(svg.contains("throughput (op/s)") && svg.contains("response (ms)"));
        assert_eq!(svg.matches("class=\"band").count(), 1);
        assert_eq!(svg.matches("<polyline").count(), 2);
        assert!(svg.contains(">measured</text>") && svg.contains(">model</text>"));
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
        assert!(
            !svg.contains("http://") || svg.matches("http://").count() == 1,
            "only the SVG name space"
        );
    }

    #[test]
    fn names_stand_at_the_ends_and_long_titles_have_lines() {
        let mut chart =
            Chart::new("word ".repeat(30), Axis::new("x", ""), Axis::new("y", "")).names_at_ends();
        for name in 0..12 {
            chart = chart.series(Series::new(format!("program {name}"), [(0.0, 1.0), (1.0, 1.0)]));
        }
        let svg = chart.to_svg().unwrap();
        let height = |name: usize| -> f64 {
            let (before, _) = svg.split_once(&format!(">program {name}</text>")).unwrap();
            let (_, y) = before.rsplit_once(" y=\"").unwrap();
            y.trim_end_matches('"')
                .split('"')
                .next()
                .unwrap()
                .parse()
                .unwrap()
        };
        for name in 1..12 {
            assert!(height(name) - height(name - 1) > 13.0, "{svg}");
        }
        assert!(svg.matches("font-weight=\"600\"").count() > 1);
    }

    #[test]
    fn refuses_what_cannot_be_drawn() {
        assert_eq!(
            chart(Kind::Linear).to_svg(),
            Err(ChartError::Empty("Response <time>".into()))
        );
        let zero = chart(Kind::Logarithmic).series(Series::new("s", [(1.0, 0.0)]));
        assert!(matches!(
            zero.to_svg(),
            Err(ChartError::NotPositive { index: 0, .. })
        ));
        let missing = chart(Kind::Linear).series(Series::new("s", [(1.0, 1.0), (f64::NAN, 1.0)]));
        assert!(matches!(
            missing.to_svg(),
            Err(ChartError::NotFinite { index: 1, .. })
        ));
    }

    #[test]
    fn one_point_is_enough() {
        for kind in [Kind::Linear, Kind::Logarithmic] {
            let svg = chart(kind)
                .series(Series::new("s", [(5.0, 5.0)]))
                .to_svg()
                .unwrap();
            assert!(!svg.contains("NaN"), "{svg}");
        }
    }

    #[test]
    fn charts_are_stacked() {
        let chart = chart(Kind::Linear).series(Series::new("s", [(5.0, 5.0)]));
        let alone = chart.to_svg().unwrap();
        let height: f64 = alone
            .split_once(" height=\"")
            .and_then(|(_, rest)| rest.split_once('"'))
            .and_then(|(height, _)| height.parse().ok())
            .unwrap();
        let svg = Chart::stacked(&[chart.clone(), chart]).unwrap();
        assert_eq!(
            (svg.matches("<svg ").count(), svg.matches("</svg>").count()),
            (3, 3)
        );
        assert!(
            svg.contains("<svg y=\"0\"") && svg.contains(&format!("<svg y=\"{height}\"")),
            "{svg:.400}"
        );
    }

    #[test]
    fn tags_are_balanced() {
        let svg = chart(Kind::Logarithmic)
            .series(Series::new(
                "s",
                (1..2000).map(|x| (f64::from(x), f64::from(x * x))),
            ))
            .to_svg()
            .unwrap();
        for tag in ["svg", "g", "text", "title", "style"] {
            let opened = svg.matches(&format!("<{tag}>")).count() + svg.matches(&format!("<{tag} ")).count();
            assert_eq!(opened, svg.matches(&format!("</{tag}>")).count(), "{tag}");
        }
    }
}
