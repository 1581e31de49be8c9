//! Every figure that needs no root, drawn.

use std::time::{Duration, Instant};

use super::*;

/// Longest time for one of them in a debug build, on a busy machine.
const LIMIT: Duration = Duration::from_secs(30);

#[test]
fn names_say_the_paper_and_are_used_once() {
    let mut names: Vec<&str> = all().map(|figure| figure.name).collect();
    for figure in all() {
        assert!(figure.name.starts_with(figure.paper.key()), "{}", figure.name);
    }
    names.sort_unstable();
    let count = names.len();
    names.dedup();
    assert_eq!(names.len(), count);
}

#[test]
fn models_draw_well_formed_pages_in_time() {
    let out = tempfile::tempdir().unwrap();
    for figure in all().filter(|figure| !figure.needs.root) {
        let setting = Setting {
            quick: figure.needs.quick_minutes.is_some(),
            directory: out.path().join(figure.name),
            signals: Signals::default(),
        };
        let begun = Instant::now();
        let outcome = (figure.draw)(&setting).unwrap();
        assert!(begun.elapsed() < LIMIT, "{}: {:?}", figure.name, begun.elapsed());
        let result = page::Result::new(figure, &outcome, setting.quick, 0.0);
        result.write(out.path()).unwrap();
        let html = fs::read_to_string(out.path().join(format!("{}.html", figure.name))).unwrap();
        for tag in ["html", "body", "svg", "table", "tr", "td", "dl", "div", "g"] {
            let opened =
                html.matches(&format!("<{tag}>")).count() + html.matches(&format!("<{tag} ")).count();
            assert_eq!(
                opened,
                html.matches(&format!("</{tag}>")).count(),
                "{}: {tag}",
                figure.name
            );
        }
        assert!(!html.contains("NaN"), "{}", figure.name);
        assert!(
            outcome.rows.len() + outcome.panels.len() > 0,
            "{}: nothing to show",
            figure.name
        );
    }
}

#[test]
fn unknown_names_are_answered_with_the_nearest() {
    let refused = |word: &str| select(&[word.to_owned()]).unwrap_err().to_string();
    assert!(refused("martin-tabel-3.3").contains("martin-table-3.3"));
    assert!(refused("martin-fig-3.9").contains("martin-fig-3.2"));
    assert!(refused("x").contains("salisbury"));
    let twice = ["martin-fig-3.2".to_owned(), "martin".to_owned()];
    let chosen = select(&twice).unwrap();
    assert_eq!(
        chosen
            .iter()
            .filter(|figure| figure.name == "martin-fig-3.2")
            .count(),
        1
    );
}
