//! How a model looks on a terminal, of whatever size.
//!
//! Model: rows from the top are the title, states, servers; from the bottom the keys and what came of the last one. What is between
//! takes what room is left, the selected server's curves and knobs first, then timelines, lateness and classes. Nothing is said by colour alone.

use ratatui::{
    Frame,
    layout::{Constraint, Layout, Rect},
    style::{Color, Modifier, Style},
    text::{Line, Span},
    widgets::{Paragraph, RenderDirection, Row, Sparkline, Table, Wrap},
};

use ratatui::symbols::bar;

use super::{
    input::KEYS,
    model::{History, Model},
    words,
};

const DIGITS: u8 = 3;

/// What a terminal can show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Look {
    pub(super) coloured: bool,
    /// Letters beyond ASCII.
    pub(super) wide: bool,
}

/// Bars of ASCII.
const PLAIN_BARS: bar::Set<'static> = bar::Set {
    full: "#",
    seven_eighths: "#",
    three_quarters: "*",
    five_eighths: "+",
    half: "=",
    three_eighths: "-",
    one_quarter: ":",
    one_eighth: ".",
    empty: " ",
};

impl Look {
    fn bars(self) -> bar::Set<'static> {
        if self.wide { bar::NINE_LEVELS } else { PLAIN_BARS }
    }

    fn colour(self, colour: Color) -> Style {
        if self.coloured {
            Style::new().fg(colour)
        } else {
            Style::new()
        }
    }

    fn alarm(self) -> Style {
        self.colour(Color::Red).add_modifier(Modifier::BOLD)
    }
}

const HEAD: Style = Style::new().add_modifier(Modifier::BOLD);
const SELECTED: Style = Style::new().add_modifier(Modifier::REVERSED);
/// Columns of a server's name.
const NAME: u16 = 18;

/// Draws it.
pub(super) fn draw(frame: &mut Frame<'_>, model: &Model, look: Look) {
    let area = frame.area();
    if model.help {
        help(frame, area);
        return;
    }
    let mut states = model.states();
    let is_alarm = !states.is_empty();
    states.extend(words::deadlines(&model.report).into_iter().map(|(_, said)| said));
    let timeline = model.server().and_then(words::timeline);
    let lateness = model.report.lateness.as_ref();
    let lateness = lateness.map(|lateness| words::late(lateness, DIGITS));
    let lines: Vec<Line<'_>> = timeline.into_iter().chain(lateness).map(Line::from).collect();
    let heights = Heights {
        state: u16::from(!states.is_empty()),
        servers: rows(model.report.servers.len()),
        classes: rows(model.passing.len()),
        lines: lines.len() as u16,
        bottom: 1 + rows_of(&said(model), area.width).clamp(1, (area.height / 4).max(1)),
    };
    let [title, state, top, middle, knob, classes, more, _, last] = heights.within(area);
    frame.render_widget(self::title(model), title);
    if !states.is_empty() {
        let style = if is_alarm { look.alarm() } else { HEAD };
        frame.render_widget(Paragraph::new(states.join("; ")).style(style), state);
    }
    servers(frame, top, model, look);
    curves(frame, middle, model, look);
    frame.render_widget(knobs(model, knob.width), knob);
    self::classes(frame, classes, model);
    frame.render_widget(Paragraph::new(lines), more);
    bottom(frame, last, model, look);
}

/// So many rows and their head.
fn rows(count: usize) -> u16 {
    count.saturating_add(1).min(1000) as u16
}

/// The rows that the parts would like to have.
struct Heights {
    state: u16,
    servers: u16,
    classes: u16,
    lines: u16,
    bottom: u16,
}

impl Heights {
    /// What they get: title, state, servers, curves, knobs, classes, further lines, nothing, and the bottom.
    fn within(&self, area: Rect) -> [Rect; 9] {
        let mut left = area.height;
        let mut take = |wanted: u16, most: u16| {
            let taken = wanted.min(most).min(left);
            left -= taken;
            (taken, left)
        };
        let (bottom, _) = take(self.bottom, area.height.saturating_sub(1));
        let (title, _) = take(1, 1);
        let (state, left) = take(self.state, 1);
        let (knobs, _) = take(1, u16::from(left >= 3));
        let (mut curves, left) = take(if left >= 14 { 3 } else { 1 }, u16::from(left >= 4) * 3);
        // Servers may have half of what is left, and what the others do not need.
        let (least, _) = take(self.servers, left.div_ceil(2));
        let (classes, _) = take(self.classes, u16::MAX);
        let (lines, left) = take(self.lines, u16::MAX);
        let (further, left) = take(self.servers - least, left);
        if curves == 3 {
            curves += take(left / 3 * 3, 6).0;
        }
        let given = [title, state, least + further, curves, knobs, classes, lines];
        let given = given.map(Constraint::Length).into_iter();
        let all = given.chain([Constraint::Fill(1), Constraint::Length(bottom)]);
        Layout::vertical(all).areas(area)
    }
}

fn title(model: &Model) -> Paragraph<'_> {
    let report = &model.report;
    let text = if model.seen {
        let changes = match report.updates {
            0 => String::new(),
            1 => ", changed once".into(),
            times => format!(", changed {times} times"),
        };
        format!(
            "perturb top  {}: {}, pacer {}{changes}",
            report.id,
            report.place(),
            report.pacer
        )
    } else {
        "perturb top: looking".into()
    };
    Paragraph::new(text).style(HEAD)
}

fn servers(frame: &mut Frame<'_>, area: Rect, model: &Model, look: Look) {
    if area.height == 0 {
        return;
    }
    let [head, body] = Layout::vertical([Constraint::Length(1), Constraint::Fill(1)]).areas(area);
    // What there is no room for is left out from the right; the drops are not.
    let columns: &[usize] = match area.width {
        0..46 => &[0, 3],
        46..60 => &[0, 1, 3],
        _ => &[0, 1, 2, 3],
    };
    let widths = [8, 14, 10, 8];
    let mut constraints = vec![Constraint::Length(NAME + 1)];
    constraints.extend(columns.iter().map(|&column| Constraint::Length(widths[column])));
    constraints.push(Constraint::Fill(1));
    let cells = |name: String, values: &[String; 4]| {
        let mut cells = vec![Line::from(name)];
        cells.extend(
            columns
                .iter()
                .map(|&column| Line::from(values[column].clone()).right_aligned()),
        );
        cells
    };
    let names = ["in use", "carries", "backlog", "dropped"].map(str::to_owned);
    let heads = Row::new(cells("  server".into(), &names)).style(HEAD);
    frame.render_widget(Table::new([heads], constraints.clone()), head);
    let room = body.height as usize;
    let first = first_shown(model.selected, model.report.servers.len(), room);
    let rows = model
        .report
        .servers
        .iter()
        .zip(&model.now)
        .enumerate()
        .skip(first)
        .take(room);
    let rows: Vec<Row<'_>> = rows
        .map(|(place, (server, now))| {
            let is_selected = place == model.selected;
            let mark = if is_selected { "> " } else { "  " };
            let values = words::server(server, *now, DIGITS).map(|(_, value)| value);
            let style = match (is_selected, now.drops > Some(0)) {
                (true, _) => SELECTED,
                (false, true) => look.colour(Color::Red),
                (false, false) => Style::new(),
            };
            Row::new(cells(format!("{mark}{}", server.name), &values)).style(style)
        })
        .collect();
    frame.render_widget(Table::new(rows, constraints), body);
}

/// The first row that is shown, so that the selected one is.
fn first_shown(selected: usize, rows: usize, room: usize) -> usize {
    let last = rows.saturating_sub(room);
    selected.saturating_sub(room / 2).min(last)
}

/// The selected server over time.
fn curves(frame: &mut Frame<'_>, area: Rect, model: &Model, look: Look) {
    let Some(server) = model.server() else { return };
    let nothing = History::default();
    let history = model.history.get(&server.name).unwrap_or(&nothing);
    let most = |values: &std::collections::VecDeque<f64>| values.iter().copied().fold(0.0, f64::max);
    let curves = [
        (
            "in use",
            &history.in_use,
            words::share(most(&history.in_use), DIGITS),
            Color::Green,
        ),
        (
            "backlog",
            &history.backlog,
            words::time(most(&history.backlog), DIGITS),
            Color::Yellow,
        ),
        (
            "dropped",
            &history.drops,
            format!("{}", most(&history.drops)),
            Color::Red,
        ),
    ];
    let heights = [Constraint::Length(area.height.div_ceil(3)); 3];
    let rows: [Rect; 3] = Layout::vertical(heights).areas(area);
    for (row, (name, values, highest, colour)) in rows.into_iter().zip(curves) {
        if row.height == 0 {
            break;
        }
        let label = format!("  {name:<8} up to {highest:<9} ");
        let [text, line] = Layout::horizontal([Constraint::Length(27), Constraint::Fill(1)]).areas(row);
        frame.render_widget(Paragraph::new(label), text);
        // The newest at the right, as many as fit; in thousandths of the highest.
        let top = most(values);
        // What is not nothing is seen.
        let least = |value: f64| {
            if value > 0.0 {
                125.0 / f64::from(row.height)
            } else {
                0.0
            }
        };
        let scale = |value: &f64| {
            (value / top.max(f64::MIN_POSITIVE) * 1000.0)
                .max(least(*value))
                .ceil() as u64
        };
        let newest: Vec<u64> = values.iter().rev().map(scale).collect();
        let curve = Sparkline::default()
            .data(newest)
            .max(1000)
            .direction(RenderDirection::RightToLeft)
            .bar_set(look.bars())
            .style(look.colour(colour));
        frame.render_widget(curve, line);
    }
}

/// The selected server's knobs; as many of them, the selected one among them, as fit.
fn knobs(model: &Model, width: u16) -> Paragraph<'static> {
    let readings = model.readings();
    let texts: Vec<String> = readings
        .iter()
        .map(|(key, value)| format!(" {key} {value} "))
        .collect();
    let lengths: Vec<usize> = texts.iter().map(|text| text.chars().count()).collect();
    let mut first = 0;
    let fits = |first: usize| lengths[first..=model.knob].iter().sum::<usize>() < width as usize;
    while first < model.knob && !fits(first) {
        first += 1;
    }
    let spans = texts.into_iter().enumerate().skip(first).map(|(place, text)| {
        if place == model.knob {
            // Without reverse video, too, it is seen which one.
            Span::styled(format!("[{}]", text.trim()), SELECTED)
        } else {
            Span::raw(text)
        }
    });
    Paragraph::new(Line::from(spans.collect::<Vec<_>>()))
}

fn classes(frame: &mut Frame<'_>, area: Rect, model: &Model) {
    if area.height < 2 {
        return;
    }
    let columns: &[usize] = match area.width {
        0..46 => &[0, 2],
        46..70 => &[0, 2, 3],
        _ => &[0, 1, 2, 3],
    };
    let widths = [10, 14, 8, 10];
    let mut constraints = vec![Constraint::Length(NAME + 1), Constraint::Length(4)];
    constraints.extend(columns.iter().map(|&column| Constraint::Length(widths[column])));
    let cells = |name: String, direction: &str, values: [String; 4]| {
        let mut cells = vec![Line::from(name), Line::from(direction.to_owned())];
        cells.extend(
            columns
                .iter()
                .map(|&column| Line::from(values[column].clone()).right_aligned()),
        );
        Row::new(cells)
    };
    let names = ["packets/s", "carries", "dropped", "delay"].map(str::to_owned);
    let mut rows = vec![cells("  class".into(), "", names).style(HEAD)];
    for (name, direction, passing) in model.passing.iter().take(area.height as usize - 1) {
        let values = words::class(*passing, DIGITS).map(|(_, value)| value);
        rows.push(cells(format!("  {name}"), direction, values));
    }
    frame.render_widget(Table::new(rows, constraints), area);
}

/// What came of the last key.
fn said(model: &Model) -> String {
    match &model.said {
        _ if model.waiting > 0 => "...".into(),
        Some(Ok(done)) => done.clone(),
        Some(Err(why)) => format!("not done: {why}"),
        None => String::new(),
    }
}

/// How many rows of a width a text takes, at most.
fn rows_of(text: &str, width: u16) -> u16 {
    // A line breaks between words, so that not all of a row may be used.
    let usable = usize::from((width * 4 / 5).max(1));
    let rows = text.lines().map(|line| match line.chars().count() {
        length if length <= width.into() => 1,
        length => length.div_ceil(usable),
    });
    rows.sum::<usize>().min(u16::MAX.into()) as u16
}

/// What came of the last key, and which keys there are.
fn bottom(frame: &mut Frame<'_>, area: Rect, model: &Model, look: Look) {
    let keys = if area.width >= 76 {
        "?:help  up/down:server  left/right:knob  +/-:turn  p:pause  u:undo  q:quit"
    } else {
        "? help + - turn p pause u undo q quit"
    };
    let [text, last] = Layout::vertical([Constraint::Fill(1), Constraint::Length(1)]).areas(area);
    let is_error = model.waiting == 0 && matches!(model.said, Some(Err(_)));
    let style = if is_error { look.alarm() } else { Style::new() };
    let said = Paragraph::new(said(model))
        .style(style)
        .wrap(Wrap { trim: false });
    frame.render_widget(said, text);
    frame.render_widget(Paragraph::new(keys).style(HEAD), last);
}

fn help(frame: &mut Frame<'_>, area: Rect) {
    let mut lines = vec![Line::styled(
        "keys of perturb top; any of them leaves this page",
        HEAD,
    )];
    lines.extend(
        KEYS.iter()
            .map(|(_, _, names, what)| Line::from(format!("  {names:<9} {what}"))),
    );
    frame.render_widget(Paragraph::new(lines), area);
}

#[cfg(test)]
mod tests;
