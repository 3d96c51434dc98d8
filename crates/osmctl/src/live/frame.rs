//! What the terminal shows: the pools, those that wait for something first, and the latest Events.

use jiff::{SignedDuration, Timestamp};

use super::State;
use super::screen::Size;
use crate::row::{self, COLUMNS, Row};
use crate::snapshot::{self, ClusterPool};
use crate::{events, output};

/// Most Events that are shown.
const MOST_EVENTS: usize = 5;

/// Lines of the section of Events besides those of Events: an empty one, and the names of columns.
const HEAD_OF_EVENTS: usize = 2;

/// The lines of a frame. None is longer than the terminal is wide, and there are no more than it has.
pub fn frame(state: &State, pool: Option<&str>, now: Timestamp, size: Size, with_color: bool) -> Vec<String> {
    let pools = state.snapshot.pools();
    let shown: Vec<&ClusterPool<'_>> = match pool {
        None => pools.iter().collect(),
        Some(name) => snapshot::find(&pools, name).into_iter().collect(),
    };
    let only = pool.and_then(|_| shown.first().copied());
    let mut rows: Vec<Row<'_>> = shown
        .iter()
        .map(|pool| Row::of(&state.snapshot, pool, now))
        .collect();
    rows.sort_by_key(|row| !row.waits());
    let mut lines = vec![title(state, &rows, now, with_color)];
    lines.extend(note(state, with_color));
    lines.push(String::new());
    // Without the names of columns.
    let room = size.lines.saturating_sub(lines.len() + 1);
    // Pools get at least half of it.
    let of_pools = rows.len().min(room.div_ceil(2));
    let most_events = (room - of_pools).saturating_sub(HEAD_OF_EVENTS).min(MOST_EVENTS);
    let latest = match pool.is_some() && only.is_none() {
        true => Vec::new(),
        false => events::latest(&state.snapshot, only, most_events),
    };
    let of_events = events_section(latest, with_color);
    let room = room.saturating_sub(of_events.len());
    lines.extend(table(state, &rows, pool, now, room, with_color));
    lines.extend(of_events);
    lines.truncate(size.lines);
    lines.iter().map(|line| output::cut(line, size.columns)).collect()
}

fn title(state: &State, rows: &[Row<'_>], now: Timestamp, with_color: bool) -> String {
    let waiting = rows.iter().filter(|row| row.waits()).count();
    let pools = output::count(rows.len(), "pool");
    let summary = match waiting {
        0 => format!("{pools}, all well"),
        1 => format!("{pools}, 1 waits"),
        _ => format!("{pools}, {waiting} wait"),
    };
    let ago = seconds(now.duration_since(state.read_at));
    let title = output::paint(output::BOLD, &format!("osmctl status: {summary}"), with_color);
    format!("{title}   read {ago} ago   Ctrl-C ends")
}

/// What could not be read.
fn note(state: &State, with_color: bool) -> Option<String> {
    let unread = || state.snapshot.unread.first().map(|unread| unread.message.clone());
    let text = state.problem.clone().or_else(unread)?;
    let text = output::visible(&output::one_line(&text));
    Some(output::paint(output::RED, &text, with_color))
}

fn table(
    state: &State,
    rows: &[Row<'_>],
    pool: Option<&str>,
    now: Timestamp,
    room: usize,
    with_color: bool,
) -> Vec<String> {
    if rows.is_empty() {
        return vec![match pool {
            Some(name) => format!("MachineDeployment {name} does not exist."),
            None => row::nothing(&state.snapshot).trim_end().to_owned(),
        }];
    }
    let mut head = COLUMNS.map(str::to_owned);
    for name in &mut head {
        if name == "EXPIRES" {
            "TIME LEFT".clone_into(name);
        }
    }
    let fits = rows.len() <= room;
    let most = if fits { room } else { room.saturating_sub(1) };
    let lines = rows.iter().take(most);
    let lines = lines.map(|row| row.line(with_color, |expires| time_left(expires, now)));
    let mut lines = split(&output::table(
        &std::iter::once(head).chain(lines).collect::<Vec<_>>(),
    ));
    if !fits {
        lines.push(format!(
            "… and {}",
            output::count(rows.len() - most.min(rows.len()), "more pool")
        ));
    }
    lines
}

fn events_section(latest: Vec<[String; 5]>, with_color: bool) -> Vec<String> {
    if latest.is_empty() {
        return Vec::new();
    }
    let head = ["EVENT", "TYPE", "REASON", "OBJECT", "MESSAGE"].map(str::to_owned);
    let lines = latest.into_iter().map(|[time, type_, reason, object, message]| {
        let color = if type_ == "Warning" {
            output::RED
        } else {
            output::GREEN
        };
        let type_ = output::paint(color, &type_, with_color);
        [time, type_, reason, object, message]
    });
    let lines: Vec<_> = std::iter::once(head).chain(lines).collect();
    let lines = split(&output::table(&lines));
    std::iter::once(String::new()).chain(lines).collect()
}

fn split(table: &str) -> Vec<String> {
    table.lines().map(str::to_owned).collect()
}

/// The time until credentials expire.
fn time_left(expires: &str, now: Timestamp) -> String {
    match expires.parse::<Timestamp>() {
        Ok(at) if at <= now => "expired".to_owned(),
        Ok(at) => seconds(at.duration_since(now)),
        Err(_) => expires.to_owned(),
    }
}

/// A duration in whole seconds, such as `1h 2m 3s`.
fn seconds(duration: SignedDuration) -> String {
    let whole = SignedDuration::from_secs(duration.as_secs().max(0));
    format!("{whole:#}")
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json};

    use super::*;
    use crate::snapshot::{Part, Unread, fixtures};

    const WIDE: Size = Size {
        columns: 300,
        lines: 40,
    };

    fn state() -> State {
        let mut snapshot = fixtures::snapshot();
        let new = fixtures::machine_deployment("team", "new");
        snapshot.machine_deployments.push(new);
        State {
            snapshot,
            read_at: "2026-02-28T22:57:56.9Z".parse().unwrap(),
            problem: None,
        }
    }

    fn now() -> Timestamp {
        "2026-02-28T22:57:57.5Z".parse().unwrap()
    }

    fn words(line: &str) -> Vec<&str> {
        line.split_whitespace().collect()
    }

    #[test]
    fn what_waits_comes_first_and_time_left_runs_out() {
        let state = state();
        let of = |now| frame(&state, None, now, WIDE, false);
        let lines = of(now());
        assert_eq!(
            lines[0],
            "osmctl status: 2 pools, 1 waits   read 0s ago   Ctrl-C ends"
        );
        assert_eq!(words(&lines[2])[..3], ["NAMESPACE", "POOL", "READY"]);
        assert!(lines[2].contains("TIME LEFT"), "{lines:#?}");
        assert_eq!(words(&lines[3])[..4], ["team", "new", "-", "osp-tiny"]);
        assert!(lines[3].ends_with("config: no-config"), "{lines:#?}");
        assert_eq!(words(&lines[4])[8..], ["1h", "2m", "2s", "-"]);
        let later = of("2026-03-01T00:00:00Z".parse().unwrap());
        assert!(later[0].contains("2 wait   read 1h 2m 3s ago"), "{later:#?}");
        assert_eq!(
            words(&later[3])[8..],
            ["expired", "Secrets:", "credentials-expired"]
        );
    }

    #[test]
    fn a_frame_fits_the_terminal_and_counts_what_does_not() {
        let mut state = state();
        for i in 0..50 {
            let md = fixtures::machine_deployment("team", &format!("pool-{i:02}"));
            state.snapshot.machine_deployments.push(md);
        }
        state.snapshot.events = (0..9)
            .map(|i| {
                from_value(json!({"metadata": {"name": format!("e{i}")}, "type": "Warning", "reason": format!("R{i}"),
                    "message": "a\n\u{1b}[2Jb", "involvedObject": {"kind": "MachineDeployment", "namespace": "team", "name": "new"},
                    "eventTime": format!("2026-01-01T00:00:0{i}.000000Z")}))
                .unwrap()
            })
            .collect();
        let size = Size {
            columns: 60,
            lines: 20,
        };
        let lines = frame(&state, None, now(), size, false);
        assert_eq!(lines.len(), 20, "{lines:#?}");
        assert!(
            lines
                .iter()
                .all(|line| line.chars().count() <= 60 && !line.contains('\u{1b}'))
        );
        let rest = lines.iter().position(|line| line.starts_with("… and ")).unwrap();
        assert_eq!(lines[rest], "… and 43 more pools");
        assert!(
            lines[rest + 3].contains("R8") && lines[19].contains("R4"),
            "{lines:#?}"
        );
        for (columns, lines) in [(1, 1), (10, 2), (10, 3), (10, 6), (80, 24)] {
            let size = Size { columns, lines };
            let frame = frame(&state, None, now(), size, true);
            assert!(frame.len() <= lines, "{size:?}: {frame:#?}");
        }
    }

    #[test]
    fn one_pool_has_its_own_events_and_may_go() {
        let mut state = state();
        let lines = frame(&state, Some("workers"), now(), WIDE, true);
        assert!(lines[0].contains("1 pool, all well"), "{lines:#?}");
        assert!(lines[3].contains("\u{1b}[32mTrue"), "{lines:#?}");
        state
            .snapshot
            .machine_deployments
            .retain(|md| md.metadata.name.as_deref() == Some("new"));
        state.snapshot.configs.clear();
        let lines = frame(&state, Some("workers"), now(), WIDE, false);
        assert_eq!(lines[2..], ["MachineDeployment workers does not exist."]);
    }

    #[test]
    fn what_could_not_be_read_is_shown() {
        let mut state = state();
        state.snapshot.unread = vec![Unread {
            part: Part::Events,
            message: "cannot list\nevents".to_owned(),
        }];
        assert_eq!(frame(&state, None, now(), WIDE, false)[1], "cannot list events");
        state.take(Err(anyhow::anyhow!("no connection")));
        assert_eq!(frame(&state, None, now(), WIDE, false)[1], "no connection");
    }
}
