//! What SVG and HTML have in common: colors, and how text stands in markup.

/// Colors on a light or a dark screen.
pub(crate) struct Theme {
    /// Behind everything.
    pub(crate) page: &'static str,
    /// Text and axes.
    pub(crate) ink: &'static str,
    /// Grids and borders.
    pub(crate) faint: &'static str,
    /// Behind what was not written by perturb, as a command.
    pub(crate) quiet: &'static str,
    /// Behind what must not be overlooked.
    pub(crate) flagged: &'static str,
    /// Okabe and Ito's palette for all kinds of color vision; the light theme darkens its yellows.
    pub(crate) series: [&'static str; 8],
}

/// The theme of a light screen, and of what knows no other.
pub(crate) const LIGHT: Theme = Theme {
    page: "#ffffff",
    ink: "#1f2328",
    faint: "#d0d7de",
    quiet: "#f6f8fa",
    flagged: "#fff1e5",
    series: [
        "#0072b2", "#d55e00", "#00805d", "#b0497f", "#8a6d00", "#3a8fc0", "#5b5b5b", "#7a3db8",
    ],
};

/// The theme of a dark screen.
pub(crate) const DARK: Theme = Theme {
    page: "#0d1117",
    ink: "#e6edf3",
    faint: "#30363d",
    quiet: "#161b22",
    flagged: "#3b2300",
    series: [
        "#56b4e9", "#ff9248", "#2fc29a", "#e39ac2", "#f0e442", "#9ad0f0", "#c4c4c4", "#c39bf0",
    ],
};

/// Rules with the colors of both themes. Colors stand in each rule: not every viewer knows CSS variables, and without
/// them it would draw black on black.
pub(crate) fn both(rules: impl Fn(&Theme) -> String) -> String {
    format!(
        "{}\n@media (prefers-color-scheme: dark){{{}}}",
        rules(&LIGHT),
        rules(&DARK)
    )
}

/// The text with its special characters written as entities: for the content of an element or a quoted attribute.
pub(crate) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}
