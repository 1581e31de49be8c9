use std::time::Duration;

use ratatui::{Terminal, backend::TestBackend, buffer::Buffer};

use super::*;
use crate::top::model::{
    Key, Pressed,
    tests::{model, report, server},
};

const PLAIN: Look = Look {
    coloured: false,
    wide: false,
};

fn drawn(model: &Model, width: u16, height: u16, look: Look) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, model, look)).unwrap();
    terminal.backend().buffer().clone()
}

fn lines(buffer: &Buffer) -> Vec<String> {
    let row = |y| {
        (0..buffer.area.width)
            .map(|x| buffer[(x, y)].symbol())
            .collect::<String>()
    };
    (0..buffer.area.height)
        .map(|y| row(y).trim_end().to_owned())
        .collect()
}

fn shown(model: &Model, width: u16, height: u16) -> Vec<String> {
    lines(&drawn(model, width, height, PLAIN))
}

#[test]
fn all_of_it_fits_24_rows_of_80() {
    let mut model = model();
    model.report.updates = 1;
    let down = server("down", 0.0, 0, 0);
    let next = report(vec![server("up", 1600.0, 1_500_000, 16), down]);
    model.see(next, Duration::from_secs(2));
    model.said = Some(Ok("done".into()));
    let shown = shown(&model, 80, 24);
    let expected = [
        "perturb top  run-7: eth0, pacer fq",
        "  server              in use        carries    backlog  dropped",
        "> up                    50 %       1 Mbit/s     1.6 ms        6",
        "  down                   0 %        0 bit/s       0 us        0",
    ];
    assert_eq!(shown[..4], expected);
    // 25 % and 50 %, 600 and 1600 us, 3 and 6 packets: at the right, three rows high each.
    let curves = shown[4..13].join("\n");
    for label in ["in use   up to 50 %", "backlog  up to 1.6 ms", "dropped  up to 6"] {
        assert!(curves.contains(label), "{curves}");
    }
    assert_eq!(shown[4][78..], *" #".to_owned(), "{curves}");
    assert_eq!(shown[6][78..], *"##".to_owned(), "{curves}");
    assert_eq!(
        shown[13],
        "[latency 40ms] bandwidth 10Mbit/s  loss 0%  jitter 0s  gap 0s  buffer unlimited"
    );
    assert_eq!(
        shown[14..16],
        [
            "  class                   packets/s        carries  dropped      delay",
            "  all               out         125       1 Mbit/s        0      20 ms",
        ]
    );
    assert_eq!(shown[22], "done");
    assert!(shown[23].contains("?:help") && shown[23].contains("q:quit"));
}

#[test]
fn the_selected_server_its_knob_and_the_error_are_seen_on_10_rows_of_40() {
    let mut model = model();
    let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let many = || report(names.map(|name| server(name, 0.0, 0, 0)).into());
    model.see(many(), Duration::from_secs(1));
    model.see(many(), Duration::from_secs(1));
    model.press(Key::Last);
    model.press(Key::Up);
    model.press(Key::Left);
    model.report.paused = true;
    model.said = Some(Err(
        "the profile does not allow that, and here is why it does not".into(),
    ));
    let shown = shown(&model, 40, 10);
    let text = shown.join("\n");
    assert_eq!(shown.len(), 10);
    assert!(shown[1].starts_with("PAUSED: traffic passes"), "{text}");
    assert!(shown.iter().any(|line| line.starts_with("> g ")), "{text}");
    assert!(text.contains("[buffer -]"), "{text}");
    assert!(text.contains("not done: the profile does not allow"), "{text}");
    assert!(text.contains("here is why it does not"), "{text}");
    assert!(shown[9].contains("? help"), "{text}");
}

/// A window of any size is drawn, without a panic, and the keys as long as there is a row.
#[test]
fn any_size_is_drawn() {
    let mut model = model();
    model.report.paused = true;
    model.said = Some(Err("word ".repeat(100)));
    for help in [false, true] {
        model.help = help;
        for (width, height) in [
            (1, 1),
            (2, 1),
            (5, 2),
            (10, 3),
            (40, 4),
            (80, 5),
            (300, 2),
            (19, 100),
            (500, 200),
        ] {
            let drawn = shown(&model, width, height);
            assert!(
                help || height < 2 || width < 40 || drawn.join(" ").contains("help"),
                "{width} x {height}"
            );
        }
    }
}

/// Each look, with colour and without, says the same in letters; without colour there is none.
#[test]
fn nothing_is_said_by_colour_alone() {
    let mut model = model();
    model.report.paused = true;
    model.said = Some(Err("no".into()));
    let look = |coloured| {
        drawn(
            &model,
            80,
            24,
            Look {
                coloured,
                wide: false,
            },
        )
    };
    let (with, without) = (look(true), look(false));
    assert_eq!(lines(&with), lines(&without));
    let is_coloured = |buffer: &Buffer| {
        buffer
            .content
            .iter()
            .any(|cell| cell.fg != Color::Reset || cell.bg != Color::Reset)
    };
    assert!(is_coloured(&with) && !is_coloured(&without));
    let text = lines(&without).join("\n");
    assert!(
        text.contains("not done: no") && text.contains("PAUSED") && text.contains("> up"),
        "{text}"
    );
    assert!(text.is_ascii(), "{text}");
    let wide = drawn(
        &model,
        80,
        24,
        Look {
            coloured: false,
            wide: true,
        },
    );
    assert!(lines(&wide).join("\n").contains('█'));
}

#[test]
fn the_help_has_every_key() {
    let mut model = model();
    assert_eq!(model.press(Key::Help), Pressed::Shown);
    let text = shown(&model, 80, 24).join("\n");
    for (_, _, names, what) in KEYS {
        assert!(text.contains(names) && text.contains(what), "{names}: {text}");
    }
}

#[test]
fn before_the_first_look_there_is_a_word() {
    assert_eq!(shown(&Model::default(), 80, 24)[0], "perturb top: looking");
}
