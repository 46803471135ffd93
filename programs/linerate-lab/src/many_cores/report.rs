//! The questions to the model, and its answers in Gbit/s of TCP payload: a table for the terminal and a picture.

use std::fmt::Write;

use super::costs::{Cost, Costs};
use super::pool::{Early, Outcome, Setting, Stages, run};
use crate::page::{Across, Curve, Panel, picture as draw_picture};

/// Workers, one on each core.
const CORES: [usize; 12] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64];

/// Those of them that stand at the axes of the picture, and in the smaller tables.
const MARKED: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];

/// The most batches of one source under way, where nothing else is said.
const TICKETS: u64 = 16;

/// Cache lines that change cores with a lock or a turn, where nothing else is said: about three of ours (the lock,
/// the tickets, the batch's descriptor) and the kernel's of the queue, the socket and its accounts.
const LINES: f64 = 10.0;

/// What else may be true of them: nothing shared but the lock, a TCP socket's state as well, far worse.
const OTHER_LINES: [f64; 5] = [0.0, 3.0, 10.0, 30.0, 100.0];

const OTHER_TICKETS: [u64; 7] = [1, 2, 4, 8, 16, 32, 64];

const SOURCES: [usize; 4] = [1, 2, 4, 8];

/// A throughput counts as the most there is from this share of it on.
const SATURATED: f64 = 0.95;

/// What is asked about: a name and the stages that belong to it.
struct Way {
    name: &'static str,
    stages: Stages,
    early: Early,
}

/// A column of a table.
#[derive(Clone)]
struct Column {
    head: String,
    cells: Vec<String>,
}

/// The answers as text, aligned, each line ended.
#[must_use]
pub fn table(costs: &Costs) -> String {
    let blocks = [bounds(costs), one_flow(costs), early(costs), hand_overs(costs), tickets(costs), sources(costs)];
    blocks.join("\n")
}

/// The answers as a picture (SVG).
#[must_use]
pub fn picture(costs: &Costs) -> String {
    let ways = |title: &str, ways: &[Way]| {
        let mut curves = vec![Curve { name: "no followers".into(), points: flat(alone(costs, &ways[0])) }];
        curves.extend(ways.iter().map(|way| curve(way.name, |cores| gbit(costs, &answer(costs, way, cores)))));
        panel(title, curves)
    };
    let lines = OTHER_LINES.into_iter().map(|lines| {
        let way = &inbound(costs)[1];
        let name = format!("{lines} cache lines");
        curve(&name, |cores| {
            gbit(costs, &ask(way, Setting { hand_over: us(costs, lines), ..setting(costs, way, cores) }))
        })
    });
    let sources = SOURCES.into_iter().map(|sources| {
        let way = &inbound(costs)[1];
        let name = if sources == 1 { "1 queue".into() } else { format!("{sources} queues") };
        curve(&name, |cores| gbit(costs, &ask(way, Setting { sources, ..setting(costs, way, cores) })))
    });
    let panels = [
        ways("One flow, outbound", &outbound(costs)),
        ways("One flow, inbound", &inbound(costs)),
        panel("One flow, inbound, by what a hand-over moves", lines.collect()),
        panel("Several queues, inbound", sources.collect()),
    ];
    draw_picture(&panels, "Throughput over cores, by the model of many cores")
}

/// From the TUN device to the wire.
fn outbound(costs: &Costs) -> [Way; 3] {
    let stages = costs.outbound;
    let to = |send| Stages { read: vec![stages.read], work: vec![stages.split, stages.seal], deliver: vec![send] };
    [
        Way { name: "followers stay", stages: to(stages.send), early: Early::Stay },
        Way { name: "followers leave", stages: to(stages.send), early: Early::Leave },
        Way { name: "no USO on card", stages: to(costs.around.send_cut_up), early: Early::Stay },
    ]
}

/// From the wire to the TUN device.
fn inbound(costs: &Costs) -> [Way; 4] {
    let stages = costs.inbound;
    let read = vec![stages.receive];
    let early = Stages {
        read: read.clone(),
        work: vec![stages.open, stages.replay, stages.admit, stages.merge],
        deliver: vec![stages.write],
    };
    let late = Stages {
        read,
        work: vec![stages.open],
        deliver: vec![stages.replay, stages.admit, stages.merge, stages.write],
    };
    [
        Way { name: "merge in turn", stages: late, early: Early::Stay },
        Way { name: "merge before", stages: early.clone(), early: Early::Stay },
        Way { name: "before, leave", stages: early.clone(), early: Early::Leave },
        Way {
            name: "TCP elsewhere",
            stages: Stages { deliver: vec![costs.around.write_alone], ..early },
            early: Early::Stay,
        },
    ]
}

fn setting(costs: &Costs, way: &Way, cores: usize) -> Setting {
    Setting {
        cores,
        sources: 1,
        tickets: TICKETS,
        early: way.early,
        hand_over: us(costs, LINES),
        foreign: costs.cores.train,
    }
}

/// Microseconds in which as many cache lines change cores.
fn us(costs: &Costs, lines: f64) -> f64 {
    lines * costs.cores.line_ns / 1e3
}

fn ask(way: &Way, setting: Setting) -> Outcome {
    run(&way.stages, setting)
}

fn answer(costs: &Costs, way: &Way, cores: usize) -> Outcome {
    ask(way, setting(costs, way, cores))
}

fn gbit(costs: &Costs, outcome: &Outcome) -> f64 {
    per(costs, 1.0 / outcome.rate)
}

/// Gbit/s of trains that take as many microseconds each.
fn per(costs: &Costs, micros: f64) -> f64 {
    f64::from(costs.payload) * 8.0 / micros / 1e3
}

/// One thread that carries each batch through all stages.
fn alone(costs: &Costs, way: &Way) -> f64 {
    per(costs, per_train(way))
}

/// Microseconds in which one thread carries a batch through all stages.
fn per_train(way: &Way) -> f64 {
    let Stages { read, work, deliver } = &way.stages;
    mean(read) + mean(work) + mean(deliver)
}

fn mean(costs: &[Cost]) -> f64 {
    costs.iter().map(Cost::mean).sum()
}

/// What each thing that is done one batch after the other allows.
fn bounds(costs: &Costs) -> String {
    let hand_over = us(costs, LINES);
    let [out, _, cut_up] = outbound(costs);
    let [late, early, _, elsewhere] = inbound(costs);
    let serial = |name, stages: &[Cost]| (name, mean(stages) + hand_over);
    let rows = [
        serial("outbound: read under the lock", &out.stages.read),
        serial("outbound: send in turn", &out.stages.deliver),
        serial("outbound: send in turn, card without USO", &cut_up.stages.deliver),
        serial("inbound: receive under the lock", &early.stages.read),
        serial("inbound: write in turn", &early.stages.deliver),
        serial("inbound: write in turn, TCP on other cores", &elsewhere.stages.deliver),
        serial("inbound: replay, admit, merge and write in turn", &late.stages.deliver),
        ("around: the thread that sends the TCP stream", costs.around.tcp_sender),
        (
            "around: the kernel's receiving side, up to the socket",
            costs.around.send_veth.mean() - costs.outbound.send.mean(),
        ),
        ("around: the thread that receives it", costs.around.tcp_receiver),
        ("one core: all of outbound", per_train(&out)),
        ("one core: all of inbound", per_train(&early)),
    ];
    let mut out = format!("{:<56}{:>12}{:>12}\n", "What is done one train after the other", "us", "Gbit/s");
    for (name, micros) in rows {
        let _ = writeln!(out, "{name:<56}{micros:>12.1}{:>12.1}", per(costs, micros));
    }
    out
}

fn one_flow(costs: &Costs) -> String {
    let mut columns = Vec::new();
    for (direction, ways) in [("outbound,", &outbound(costs)[..]), ("inbound,", &inbound(costs)[..])] {
        columns.push(by_cores(format!("{direction} no followers"), [alone(costs, &ways[0]); CORES.len()]));
        columns.extend(ways.iter().map(|way| {
            let figures = CORES.map(|cores| gbit(costs, &answer(costs, way, cores)));
            by_cores(format!("{direction} {}", way.name), figures)
        }));
    }
    let mut rows = names(CORES);
    rows.push("95 % at".into());
    lay("One flow, Gbit/s by cores", &rows, &columns)
}

/// Figures for [`CORES`], and from how many on there is hardly more.
fn by_cores(head: String, figures: [f64; CORES.len()]) -> Column {
    let most = figures[figures.len() - 1];
    let enough = CORES.iter().zip(figures).find(|(_, figure)| *figure >= SATURATED * most);
    let mut cells: Vec<String> = figures.map(figure).into();
    cells.push(enough.map_or(String::new(), |(cores, _)| cores.to_string()));
    Column { head, cells }
}

/// What waiting costs: the same flow with workers that stay beside a batch, and with workers that leave it.
fn early(costs: &Costs) -> String {
    let [_, stay, leave, _] = inbound(costs);
    let mut columns = Vec::new();
    for (name, way) in [("stay", stay), ("leave", leave)] {
        let outcomes = MARKED.map(|cores| (cores, answer(costs, &way, cores)));
        let cells = |cell: fn(usize, &Outcome) -> f64| outcomes.map(|(cores, outcome)| figure(cell(cores, &outcome)));
        columns.push(Column {
            head: format!("{name}, Gbit/s"),
            cells: outcomes.map(|(_, outcome)| figure(gbit(costs, &outcome))).into(),
        });
        let at_work = |cores, outcome: &Outcome| cores as f64 * outcome.busy;
        columns.push(Column { head: format!("{name}, cores at work"), cells: cells(at_work).into() });
        let waiting = |cores, outcome: &Outcome| cores as f64 * outcome.waiting;
        columns.push(Column { head: format!("{name}, cores that wait"), cells: cells(waiting).into() });
    }
    lay("Inbound, merge before: a batch whose turn has not come", &names(MARKED), &columns)
}

fn hand_overs(costs: &Costs) -> String {
    let [out, ..] = outbound(costs);
    let [_, into, ..] = inbound(costs);
    let columns = [("outbound,", &out), ("inbound,", &into)].map(|(direction, way)| {
        [2, 4, 8, 64].map(|cores| {
            let at = |lines| ask(way, Setting { hand_over: us(costs, lines), ..setting(costs, way, cores) });
            let cells = OTHER_LINES.map(|lines| figure(gbit(costs, &at(lines)))).into();
            Column { head: format!("{direction} {cores} cores"), cells }
        })
    });
    let rows: Vec<String> =
        OTHER_LINES.iter().map(|lines| format!("{lines:>3} ({:.1} us)", us(costs, *lines))).collect();
    lay("Gbit/s by cache lines that a lock or a turn moves", &rows, &columns.concat())
}

fn tickets(costs: &Costs) -> String {
    let [out, ..] = outbound(costs);
    let [_, into, leave, _] = inbound(costs);
    let ways = [("outbound, stay,", &out), ("inbound, stay,", &into), ("inbound, leave,", &leave)];
    let columns = ways.map(|(name, way)| {
        [4, 16].map(|cores| {
            let at = |tickets| ask(way, Setting { tickets, ..setting(costs, way, cores) });
            let cells = OTHER_TICKETS.map(|tickets| figure(gbit(costs, &at(tickets)))).into();
            Column { head: format!("{name} {cores} cores"), cells }
        })
    });
    lay("Gbit/s by tickets of a source", &names(OTHER_TICKETS.map(|tickets| tickets as usize)), &columns.concat())
}

fn sources(costs: &Costs) -> String {
    let [out, ..] = outbound(costs);
    let [_, into, ..] = inbound(costs);
    let columns = [("outbound,", &out), ("inbound,", &into)].map(|(direction, way)| {
        SOURCES.map(|sources| {
            let at = |cores| ask(way, Setting { sources, ..setting(costs, way, cores) });
            let cells = CORES.map(|cores| figure(gbit(costs, &at(cores)))).into();
            Column { head: format!("{direction} {sources} queue{}", if sources == 1 { "" } else { "s" }), cells }
        })
    });
    lay("Several queues that share nothing, Gbit/s by cores", &names(CORES), &columns.concat())
}

fn names<const N: usize>(numbers: [usize; N]) -> Vec<String> {
    numbers.map(|number| number.to_string()).into()
}

fn figure(value: f64) -> String {
    format!("{value:.1}")
}

/// A title, heads of as many lines as they have words that do not fit, and the rows.
fn lay(title: &str, rows: &[String], columns: &[Column]) -> String {
    const WIDTH: usize = 12;
    let heads: Vec<Vec<String>> = columns.iter().map(|column| wrap(&column.head, WIDTH - 2)).collect();
    let lines = heads.iter().map(Vec::len).max().unwrap_or(0);
    let first = rows.iter().map(String::len).max().unwrap_or(0);
    let mut out = format!("{title}\n");
    for line in 0..lines {
        let words = heads.iter().map(|head| head.get(line).map_or("", String::as_str));
        let words: String = words.map(|word| format!("{word:>WIDTH$}")).collect();
        out.push_str(&format!("{:first$}{}\n", "", words.trim_end()));
    }
    for (i, row) in rows.iter().enumerate() {
        let cells: String = columns.iter().map(|column| format!("{:>WIDTH$}", column.cells[i])).collect();
        out.push_str(&format!("{row:>first$}{cells}\n"));
    }
    out
}

/// The words of `text` in lines of at most `width`.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.len() + 1 + word.len() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.into()),
        }
    }
    lines
}

fn panel(title: &str, curves: Vec<Curve>) -> Panel {
    Panel {
        title: title.into(),
        across: Across::Marked("cores (log)".into(), MARKED.map(|cores| cores as f64).into()),
        up: "Gbit/s of TCP payload".into(),
        curves,
    }
}

fn curve(name: &str, at: impl Fn(usize) -> f64) -> Curve {
    Curve { name: name.into(), points: CORES.map(|cores| (cores as f64, at(cores))).into() }
}

fn flat(value: f64) -> Vec<(f64, f64)> {
    CORES.map(|cores| (cores as f64, value)).into()
}
