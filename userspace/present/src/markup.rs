//! What SVG and HTML have in common.

/// The text with its special characters written as entities: for the content of an element or a quoted attribute.
pub(crate) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}
