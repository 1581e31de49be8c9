//! A report as one HTML file: headings, text, tables and charts, readable on a light and on a dark screen.
//!
//! Model: a [`Page`] is a list of parts in the order in which they were added. Everything is inside of the file: the
//! charts are inline SVG, there is no script and no reference to anything outside, so that the file can be mailed and
//! kept. `prefers-color-scheme` switches the colors, as it does in the charts.
//! What is lacking: any markup in texts (they are escaped), nested parts, interaction.

use std::fmt::Write as _;

use crate::{
    Table,
    chart::{Chart, ChartError},
    markup::{Theme, both, escaped},
};

/// Everything but the colors.
const STYLE: &str = "\
:root{color-scheme:light dark}\
body{margin:2rem auto;padding:0 1rem;max-width:60rem;font:15px/1.5 system-ui,sans-serif}\
h1{font-size:1.6rem}h2{font-size:1.25rem;margin-top:2rem}\
svg{display:block;max-width:100%;height:auto;margin:1rem 0}\
.figures{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,25rem),1fr));gap:0 1rem}\
.wide{overflow-x:auto}table{border-collapse:collapse;font-variant-numeric:tabular-nums;margin:1rem 0}\
caption{text-align:left;opacity:.75;padding-bottom:.3rem}\
th,td{padding:.2rem .7rem;text-align:right;border-bottom:1px solid;white-space:nowrap;vertical-align:top}\
th{white-space:normal;vertical-align:bottom}th.text,td.text{text-align:left}td.text{white-space:normal}\
dl{display:grid;grid-template-columns:max-content 1fr;gap:.1rem 1rem}dt{opacity:.75}dd{margin:0;overflow-wrap:anywhere}\
pre{padding:.7rem;white-space:pre-wrap;overflow-wrap:anywhere}\
@media(max-width:45rem){\
body{margin:1rem auto}dl{grid-template-columns:1fr}dd{margin-bottom:.4rem}\
th,td{padding:.2rem .35rem}\
.many table,.many tbody,.many caption{display:block}.many thead{display:none}\
.many tr{display:flex;flex-wrap:wrap;gap:0 1rem;padding:.4rem .35rem;border-width:0 0 1px;border-style:solid}\
.many td,.many td.text{padding:0;border:0;white-space:normal}.many td:first-child{font-weight:600}\
.many td:empty{display:none}.many td:not(.text)::before{content:attr(data-name) \" \";opacity:.75}}";

/// On a narrow screen a row of a table of more columns, or of texts, takes several lines: what it is about, then cells with
/// their columns' names.
const MANY: usize = 4;

fn colors(theme: &Theme) -> String {
    let Theme {
        page,
        ink,
        faint,
        quiet,
        flagged,
        ..
    } = theme;
    format!(
        "body{{background:{page};color:{ink}}}th,td,tr{{border-color:{faint}}}tr.flagged{{background:{flagged}}}\
         pre{{background:{quiet}}}"
    )
}

/// A report under way.
#[derive(Clone, Debug, PartialEq)]
pub struct Page {
    title: String,
    body: String,
}

impl Page {
    /// A page with a title only.
    #[must_use]
    pub fn new(title: &str) -> Self {
        Self {
            title: title.into(),
            body: String::new(),
        }
    }

    /// Begins a section.
    #[must_use]
    pub fn heading(self, text: &str) -> Self {
        self.element("h2", text)
    }

    /// Adds a paragraph.
    #[must_use]
    pub fn paragraph(self, text: &str) -> Self {
        self.element("p", text)
    }

    /// Adds text whose lines and spaces stay: a profile, a command.
    #[must_use]
    pub fn verbatim(self, text: &str) -> Self {
        self.element("pre", text)
    }

    /// Adds names with their values: what was measured where, with which settings.
    #[must_use]
    pub fn facts(mut self, facts: impl IntoIterator<Item = (&'static str, String)>) -> Self {
        self.body.push_str("<dl>\n");
        for (name, value) in facts {
            let _ = writeln!(
                self.body,
                "<dt>{}</dt><dd>{}</dd>",
                escaped(name),
                escaped(&value)
            );
        }
        self.body.push_str("</dl>\n");
        self
    }

    /// Adds a table.
    #[must_use]
    pub fn table(mut self, caption: &str, table: &Table) -> Self {
        let out = &mut self.body;
        let many = table.header.len() > MANY || table.text == table.header.len();
        let _ = writeln!(
            out,
            "<div class=\"wide{}\"><table>",
            if many { " many" } else { "" }
        );
        if !caption.is_empty() {
            let _ = writeln!(out, "<caption>{}</caption>", escaped(caption));
        }
        let class = |column| {
            if column < table.text {
                " class=\"text\""
            } else {
                ""
            }
        };
        out.push_str("<thead><tr>");
        for (column, name) in table.header.iter().enumerate() {
            let _ = write!(out, "<th scope=\"col\"{}>{}</th>", class(column), escaped(name));
        }
        out.push_str("</tr></thead>\n<tbody>\n");
        for row in &table.rows {
            out.push_str(if row.flagged {
                "<tr class=\"flagged\">"
            } else {
                "<tr>"
            });
            for (column, name) in table.header.iter().enumerate() {
                let name = if many && !name.is_empty() {
                    format!(" data-name=\"{}\"", escaped(name))
                } else {
                    String::new()
                };
                let cell = row.cells.get(column).map_or("", String::as_str);
                let _ = write!(out, "<td{}{name}>{}</td>", class(column), escaped(cell));
            }
            out.push_str("</tr>\n");
        }
        out.push_str("</tbody></table></div>\n");
        self
    }

    /// Adds a chart.
    ///
    /// # Errors
    /// If it cannot be drawn.
    pub fn chart(mut self, chart: &Chart) -> Result<Self, ChartError> {
        self.body.push_str(&chart.to_svg()?);
        Ok(self)
    }

    /// Adds charts side by side, as many as there is room for.
    ///
    /// # Errors
    /// If one of them cannot be drawn.
    pub fn figures(mut self, charts: &[&Chart]) -> Result<Self, ChartError> {
        self.body.push_str("<div class=\"figures\">\n");
        for chart in charts {
            self = self.chart(chart)?;
        }
        self.body.push_str("</div>\n");
        Ok(self)
    }

    /// Adds a picture: an SVG document of our own, which is trusted.
    #[must_use]
    pub fn picture(mut self, svg: &str) -> Self {
        self.body.push_str(svg);
        self
    }

    /// The whole file.
    #[must_use]
    pub fn to_html(&self) -> String {
        let title = escaped(&self.title);
        format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <title>{title}</title>\n<style>{STYLE}{}</style>\n</head>\n<body>\n<h1>{title}</h1>\n{}</body>\n</html>\n",
            both(colors),
            self.body
        )
    }

    fn element(mut self, name: &str, text: &str) -> Self {
        let _ = writeln!(self.body, "<{name}>{}</{name}>", escaped(text));
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::{Axis, Series};

    fn page() -> Page {
        let chart = Chart::new("c", Axis::new("size", "B"), Axis::new("time", "us"))
            .series(Series::new("s", [(1.0, 2.0), (2.0, 3.0)]));
        let mut times = Table::new(1, &["knob", "us"]);
        times.push(vec!["<g>".into(), "5".into()], true);
        Page::new("a < b")
            .heading("Results & more")
            .paragraph("one \"two\"")
            .facts([("kernel", "6.18".to_owned())])
            .table("times in us", &times)
            .table("", &Table::new(0, &["x"]))
            .verbatim("version: 1\n  name: x")
            .chart(&chart)
            .unwrap()
            .figures(&[&chart])
            .unwrap()
    }

    #[test]
    fn refers_to_nothing_outside() {
        let html = page().to_html();
        // The name space of SVG is a name, not an address.
        assert_eq!(
            html.matches("http").count(),
            html.matches("<svg xmlns=\"http").count()
        );
        for outside in ["<script", "<link", "src=", "href=", "@import", "url("] {
            assert!(!html.contains(outside), "{outside}");
        }
    }

    #[test]
    fn texts_are_escaped_and_tags_balanced() {
        let html = page().to_html();
        assert!(
            html.contains("<h1>a &lt; b</h1>")
                && html.contains("<td class=\"text\">&lt;g&gt;</td><td>5</td>")
        );
        assert!(html.contains("one &quot;two&quot;") && html.contains("version: 1\n  name: x"));
        assert_eq!(html.matches("prefers-color-scheme: dark").count(), 3);
        for tag in [
            "html", "head", "body", "table", "tr", "td", "dl", "svg", "style", "div", "pre",
        ] {
            let opened =
                html.matches(&format!("<{tag}>")).count() + html.matches(&format!("<{tag} ")).count();
            assert_eq!(opened, html.matches(&format!("</{tag}>")).count(), "{tag}");
        }
    }

    #[test]
    fn a_chart_without_points_is_an_error() {
        let chart = Chart::new("empty", Axis::new("x", ""), Axis::new("y", ""));
        assert!(matches!(Page::new("p").chart(&chart), Err(ChartError::Empty(_))));
    }
}
