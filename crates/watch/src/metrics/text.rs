//! The two text formats: <https://prometheus.io/docs/instrumenting/exposition_formats/> and
//! <https://github.com/prometheus/OpenMetrics/blob/v1.0.0/specification/OpenMetrics.md>.

use std::fmt::Write as _;

/// A text format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// The one that every Prometheus reads, and node_exporter's textfile collector.
    Classic,
    /// Its successor, where it is asked for.
    OpenMetrics,
}

impl Format {
    /// The media type.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Classic => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// The format that an `Accept` header asks for.
    pub fn accepted(accept: &str) -> Self {
        let asks = accept.split(',').any(|range| {
            let mut parts = range.split(';').map(str::trim);
            let is_it = parts.next().is_some_and(|media| media.eq_ignore_ascii_case("application/openmetrics-text"));
            let (mut version, mut refused) = (true, false);
            for part in parts {
                match part.split_once('=') {
                    Some(("version", value)) => version = value == "1.0.0",
                    Some(("q", value)) => refused = value.parse() == Ok(0.0),
                    _ => {}
                }
            }
            is_it && version && !refused
        });
        if asks { Self::OpenMetrics } else { Self::Classic }
    }
}

/// What a family is. Its name is without the suffix of its samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// `_total`.
    Counter,
    /// None.
    Gauge,
    /// `_info`, always 1.
    Info,
}

impl Kind {
    pub(super) fn suffix(self) -> &'static str {
        match self {
            Self::Counter => "_total",
            Self::Gauge => "",
            Self::Info => "_info",
        }
    }
}

/// Writes families one after the other.
pub(super) struct Writer {
    format: Format,
    text: String,
}

impl Writer {
    pub(super) fn new(format: Format) -> Self {
        Self { format, text: String::new() }
    }

    /// Writes the samples that `samples` adds, under a head if there are any.
    pub(super) fn family(&mut self, name: &str, kind: Kind, help: &str, samples: impl FnOnce(&mut Samples<'_>)) {
        let (whole, suffix) = match self.format {
            Format::Classic => (format!("{name}{}", kind.suffix()), ""),
            Format::OpenMetrics => (name.to_owned(), kind.suffix()),
        };
        let kind = match (kind, self.format) {
            (Kind::Counter, _) => "counter",
            (Kind::Info, Format::OpenMetrics) => "info",
            (Kind::Gauge | Kind::Info, _) => "gauge",
        };
        let start = self.text.len();
        let _ = writeln!(self.text, "# HELP {whole} {help}\n# TYPE {whole} {kind}");
        let head = self.text.len();
        samples(&mut Samples { name: &format!("{whole}{suffix}"), text: &mut self.text });
        if self.text.len() == head {
            self.text.truncate(start);
        }
    }

    pub(super) fn end(mut self) -> String {
        if self.format == Format::OpenMetrics {
            self.text.push_str("# EOF\n");
        }
        self.text
    }
}

/// The samples of one family.
pub(super) struct Samples<'a> {
    name: &'a str,
    text: &'a mut String,
}

impl Samples<'_> {
    pub(super) fn add(&mut self, labels: &[(&str, &str)], value: impl std::fmt::Display) {
        self.text.push_str(self.name);
        for (at, (name, value)) in labels.iter().enumerate() {
            self.text.push(if at == 0 { '{' } else { ',' });
            self.text.push_str(name);
            self.text.push_str("=\"");
            escape(self.text, value);
            self.text.push('"');
        }
        let end = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.text, "{end} {value}");
    }
}

/// As the formats have it: backslash, quotation mark and line feed, and nothing else.
fn escape(text: &mut String, value: &str) {
    for c in value.chars() {
        match c {
            '\\' => text.push_str("\\\\"),
            '"' => text.push_str("\\\""),
            '\n' => text.push_str("\\n"),
            c => text.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn openmetrics_is_for_those_who_ask_for_it() {
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.6,application/openmetrics-text;version=0.0.1;\
            q=0.5,text/plain;version=0.0.4;q=0.4,*/*;q=0.3";
        assert_eq!(Format::accepted(prometheus), Format::OpenMetrics);
        for other in [
            "",
            "*/*",
            "text/plain",
            "application/openmetrics-text; q=0",
            "application/openmetrics-text2",
            "application/openmetrics-text;version=0.0.1",
            "q=application/openmetrics-text",
        ] {
            assert_eq!(Format::accepted(other), Format::Classic, "{other}");
        }
    }

    #[test]
    fn names_have_their_suffix_where_the_format_wants_it() {
        let write = |format| {
            let mut writer = Writer::new(format);
            writer.family("a", Kind::Counter, "A.", |samples| samples.add(&[], 1));
            writer.family("b", Kind::Info, "B.", |samples| samples.add(&[("x", "\\\"\n"), ("y", "")], 1));
            writer.family("c", Kind::Gauge, "C.", |_| ());
            writer.end()
        };
        assert_eq!(
            write(Format::Classic),
            "# HELP a_total A.\n# TYPE a_total counter\na_total 1\n\
             # HELP b_info B.\n# TYPE b_info gauge\nb_info{x=\"\\\\\\\"\\n\",y=\"\"} 1\n"
        );
        assert_eq!(
            write(Format::OpenMetrics),
            "# HELP a A.\n# TYPE a counter\na_total 1\n\
             # HELP b B.\n# TYPE b info\nb_info{x=\"\\\\\\\"\\n\",y=\"\"} 1\n# EOF\n"
        );
    }
}
