//! `perturb top` in a real terminal (tmux): what it shows, what keys do to the emulation, and how it leaves the terminal.

use std::{
    fs,
    io::Write as _,
    path::PathBuf,
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use perturb_tests::{
    bed::Bed,
    product::{Applied, Called},
};
use perturb_verdict::installed;
use tempfile::TempDir;

use crate::{
    harness::{Setting, Test, once},
    runs::said,
    update::{delay, done, update, wait},
};

pub(crate) const TESTS: &[Test] = &[
    once("top::keys_change_and_undo", keys),
    once("top::the_terminal_is_left_as_it_was", left),
    once("top::plain_lines", plain),
    once("top::one_is_chosen", chosen),
];

const PROFILE: &str = "servers: { up: { latency: 40ms, bandwidth: 1Mbit/s, buffer: 20ms }, down: { latency: 1ms } }\n\
                       classes: [{ name: all, egress: [up], ingress: [down] }]";

/// A terminal of 80 by 24 on the left host. Dropping it ends it, and what runs in it.
struct Terminal<'a> {
    bed: &'a Bed,
    place: TempDir,
}

impl<'a> Terminal<'a> {
    /// Runs a shell's line in it. When that has ended, `over` and the terminal's settings are shown.
    fn open(bed: &'a Bed, line: &str) -> Result<Self> {
        installed(&["tmux"])?;
        let place = TempDir::with_prefix("perturb-tmux-")?;
        let terminal = Self { bed, place };
        let line = format!("{line}; echo over=$?; stty -a; exec sleep 1000");
        terminal.tmux(&["new-session", "-d", "-x", "80", "-y", "24", "sh", "-c", &line])?;
        Ok(terminal)
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = self.bed.left.command("tmux");
        command
            .arg("-S")
            .arg(self.place.path().join("socket"))
            .args(["-f", "/dev/null"]);
        command.args(words).env_remove("TMUX").stdin(Stdio::null());
        command
    }

    fn tmux(&self, words: &[&str]) -> Result<String> {
        let output = self.command(words).output()?;
        ensure!(output.status.success(), "tmux {words:?}: {output:?}");
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn press(&self, keys: &[&str]) -> Result<()> {
        self.tmux(&[&["send-keys"], keys].concat()).map(drop)
    }

    fn shown(&self) -> Result<String> {
        self.tmux(&["capture-pane", "-p"])
    }

    /// Waits until a line of the screen has all these.
    fn wait(&self, words: &[&str]) -> Result<()> {
        let mut last = String::new();
        let waited = wait("the screen", || {
            last = self.shown()?;
            Ok(last
                .lines()
                .any(|line| words.iter().all(|word| line.contains(word))))
        });
        waited.with_context(|| format!("no line has {words:?}:\n{last}"))
    }

    /// Whether it is as it was: on its first screen, with an echo, reading lines, the cursor shown.
    fn is_sane(&self) -> Result<()> {
        self.wait(&["over=0"])?;
        self.wait(&["echo", "echoe"])?;
        let shown = self.shown()?;
        let has = |word| shown.split_whitespace().any(|found| found == word);
        ensure!(has("icanon") && has("echo") && has("isig"), "{shown}");
        let flags = self.tmux(&["display-message", "-p", "#{alternate_on} #{cursor_flag}"])?;
        ensure!(flags.trim() == "0 1", "alternate screen, cursor: {flags}");
        Ok(())
    }

    /// The perturb that runs in it.
    fn perturb(&self) -> Result<Pid> {
        let shell = self.tmux(&["list-panes", "-F", "#{pane_pid}"])?;
        let shell = shell.trim();
        let children = fs::read_to_string(format!("/proc/{shell}/task/{shell}/children"))?;
        Ok(Pid::from_raw(
            children.trim().parse().context("no child of the shell")?,
        ))
    }
}

impl Drop for Terminal<'_> {
    fn drop(&mut self) {
        // It may have ended, or not begun.
        let _ = self.command(&["kill-server"]).stderr(Stdio::null()).status();
    }
}

fn id(applied: &Applied<'_>) -> Result<String> {
    Ok(applied.counters()?["id"].as_str().context("no id")?.to_owned())
}

fn top(setting: &Setting, arguments: &str) -> String {
    format!("{} top --every 200ms {arguments}", setting.product.path.display())
}

fn updates(applied: &Applied<'_>) -> Result<u64> {
    applied.counters()?["updates"].as_u64().context("no updates")
}

/// A server is seen, a knob is turned and the packets follow; what is refused is said; it is paused, and all is undone.
fn keys(setting: &Setting) -> Result<()> {
    let (bed, before) = setting.bed()?;
    let applied = setting.product.apply(&bed.left, PROFILE, setting.pacer)?;
    let terminal = Terminal::open(&bed, &top(setting, &id(&applied)?))?;
    terminal.wait(&["> up", "0 us"])?;
    terminal.wait(&["[latency 40ms]", "bandwidth 1Mbit/s", "loss 0%", "buffer 20ms"])?;
    ensure!(delay(&bed)? > 30.0, "nothing is emulated");
    terminal.wait(&["all", "out", "ms"])?;

    terminal.press(&["-"])?;
    terminal.wait(&["latency of up: 40ms to 20ms"])?;
    terminal.wait(&["[latency 20ms]"])?;
    let turned = delay(&bed)?;
    ensure!(
        (18.0..30.0).contains(&turned) && updates(&applied)? == 1,
        "{turned} ms"
    );
    terminal.press(&["u"])?;
    terminal.wait(&["undone: latency of up"])?;
    ensure!(delay(&bed)? > 30.0 && updates(&applied)? == 2, "it is not undone");

    // A frame of 1514 bytes has no room in 20 ms at 500 kbit/s.
    terminal.press(&["Right", "-"])?;
    terminal.wait(&["not done: servers.up.buffer", "shorter than one"])?;
    terminal.wait(&["[bandwidth 1Mbit/s]"])?;
    terminal.press(&["u"])?;
    terminal.wait(&["not done: no step was made here"])?;
    ensure!(updates(&applied)? == 2, "a refused change took effect");

    terminal.press(&["Down", "Left", "+"])?;
    terminal.wait(&["latency of down: 1ms to 2ms"])?;
    done(&update(setting, &bed, PROFILE, &[])?)?;
    terminal.press(&["u"])?;
    terminal.wait(&["not done: somebody else has changed the profile"])?;
    terminal.wait(&["[latency 1ms]"])?;

    terminal.press(&["p"])?;
    terminal.wait(&["PAUSED: traffic passes untouched"])?;
    wait("it is paused", || Ok(delay(&bed)? < 30.0))?;
    terminal.press(&["p"])?;
    terminal.wait(&["it emulates again"])?;
    wait("it goes on", || Ok(delay(&bed)? > 30.0))?;
    terminal.press(&["?"])?;
    terminal.wait(&["u", "back to the profile before"])?;
    terminal.press(&["x", "q"])?;
    // The first key leaves the help or is none, the second one leaves.
    terminal.is_sane()?;
    ensure!(applied.counters()?["paused"].is_null(), "{}", applied.counters()?);
    applied.stop()?;
    before.must_be_that_of(&bed.left)
}

/// By Ctrl-C, by a signal, and when the emulation ends; a small window and one without colour, too.
fn left(setting: &Setting) -> Result<()> {
    let (bed, _) = setting.bed()?;
    let applied = setting.product.apply(&bed.left, PROFILE, setting.pacer)?;
    let id = id(&applied)?;
    let line = top(setting, &id);
    let terminal = Terminal::open(&bed, &line)?;
    terminal.wait(&["> up"])?;
    terminal.tmux(&["resize-window", "-x", "40", "-y", "10"])?;
    wait("it fits", || {
        let shown = terminal.shown()?;
        Ok(shown.contains("> up")
            && shown
                .lines()
                .any(|line| line.trim_end() == "? help + - turn p pause u undo q quit"))
    })?;
    terminal.press(&["C-c"])?;
    terminal.tmux(&["resize-window", "-x", "80", "-y", "24"])?;
    terminal.is_sane()?;

    let terminal = Terminal::open(&bed, &line)?;
    terminal.wait(&["> up"])?;
    kill(terminal.perturb()?, Signal::SIGTERM)?;
    terminal.is_sane()?;

    let colours = |line: &str| -> Result<bool> {
        let terminal = Terminal::open(&bed, line)?;
        terminal.wait(&["> up"])?;
        // A curve to draw.
        delay(&bed)?;
        thread::sleep(Duration::from_millis(500));
        let shown = terminal.tmux(&["capture-pane", "-p", "-e"])?;
        let shades = (30..=37).map(|shade| shade.to_string());
        let mut shades = shades.chain(["38;5;".into()]);
        // Bold (1) and reverse video (7) are none.
        Ok(shades.any(|shade| shown.contains(&format!("[{shade}")) || shown.contains(&format!(";{shade}"))))
    };
    ensure!(colours(&line)?, "there is no colour to do without");
    ensure!(!colours(&format!("NO_COLOR=1 {line}"))?, "NO_COLOR has colours");

    let terminal = Terminal::open(&bed, &line)?;
    terminal.wait(&["> up"])?;
    applied.stop()?;
    terminal.is_sane()?;
    terminal.wait(&[&format!("the emulation {id} has ended")])
}

/// Lines for a screen reader, where nothing moves the cursor; letters that are typed do what keys do.
fn plain(setting: &Setting) -> Result<()> {
    let (bed, _) = setting.bed()?;
    let applied = setting.product.apply(&bed.left, PROFILE, setting.pacer)?;
    let id = id(&applied)?;
    let mut top = setting
        .product
        .on(&bed.left)
        .args(["top", "--plain", "--every", "200ms", &id])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut input = top.stdin.take().context("it reads nothing")?;
    // What was said without the keys: not the same again and again.
    thread::sleep(Duration::from_secs(2));
    writeln!(input, "-")?;
    wait("the knob is turned", || Ok(updates(&applied)? == 1))?;
    writeln!(input, "u")?;
    wait("it is undone", || Ok(updates(&applied)? == 2))?;
    thread::sleep(Duration::from_millis(500));
    writeln!(input, "lq")?;
    let output = top.wait_with_output()?;
    let text = said(&output);
    ensure!(output.status.success() && !text.contains('\x1b'), "{output:?}");
    let count = |line: &str| text.lines().filter(|said| said.starts_with(line)).count();
    for (line, times) in [
        (&*format!("{id}: "), 1),
        ("state: emulates", 1),
        ("up: in use 0 %, carries 0 bit/s, backlog 0 us, dropped 0", 1),
        ("latency of up: 40ms to 20ms", 1),
        ("undone: latency of up: 40ms to 20ms", 1),
        ("selected: up, bandwidth 1Mbit/s", 1),
    ] {
        ensure!(count(line) == times, "{line}: {} times in\n{text}", count(line));
    }
    applied.stop()?;
    // A terminal that can do nothing else gets lines unasked.
    let terminal = {
        let applied = setting.product.apply(&bed.left, PROFILE, setting.pacer)?;
        let terminal = Terminal::open(
            &bed,
            &format!("TERM=dumb {}", self::top(setting, &self::id(&applied)?)),
        )?;
        terminal.wait(&["up: in use 0 %"])?;
        let alternate = terminal.tmux(&["display-message", "-p", "#{alternate_on}"])?;
        ensure!(alternate.trim() == "0", "it takes the screen of a dumb terminal");
        applied.stop()?;
        terminal
    };
    terminal.is_sane()
}

/// The only one needs no name; one that is not there is named.
fn chosen(setting: &Setting) -> Result<()> {
    let (bed, _) = setting.bed()?;
    // A group's sockets are beside the records, and other tests make such.
    let place = TempDir::with_prefix("perturb-records-")?;
    let alone = format!(
        "mount --rbind /run/perturb {0} && mount -t tmpfs none /run && mkdir /run/perturb && mount --rbind {0} /run/perturb && \
         exec \"$@\"",
        place.path().display()
    );
    let call = |arguments: &[&str]| -> Result<Called> {
        let output = bed
            .left
            .command("unshare")
            .args(["--mount", "sh", "-c", &alone, "sh"])
            .arg(&setting.product.path)
            .args(["top", "--plain"])
            .args(arguments)
            .stdin(Stdio::null())
            .output()?;
        Ok(Called {
            status: output.status,
            stdout: said(&output),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    };
    let none = call(&[])?;
    ensure!(
        none.code() == 1 && none.stderr.contains("no emulation answers here"),
        "{none:?}"
    );
    let applied = setting
        .product
        .apply_with(&bed.left, PROFILE, setting.pacer, &["--for", "10s"])?;
    let id = id(&applied)?;
    let other = call(&["nosuch"])?;
    ensure!(
        other.code() == 1 && other.stderr.contains(&format!("these do: {id}")),
        "{other:?}"
    );
    let only = call(&["--every", "100ms"])?;
    ensure!(
        only.code() == 0 && only.stdout.starts_with(&format!("{id}: ")) && only.stderr.contains("has ended"),
        "{only:?}"
    );
    ensure!(only.stdout.contains("\nends in "), "{only:?}");
    ensure!(
        !PathBuf::from(format!("/run/perturb/{id}/api")).exists(),
        "the socket is left"
    );
    drop(applied);
    Ok(())
}
