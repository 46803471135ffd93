//! Text from a record inside a page, escaped.

/// `text` for HTML and SVG, in elements and in quoted attributes.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            '\n' | '\t' => escaped.push(c),
            c if c.is_control() => escaped.push(' '),
            c => escaped.push(c),
        }
    }
    escaped
}

/// `<name>text</name>`, the text escaped.
pub(super) fn element(name: &str, text: &str) -> String {
    format!("<{name}>{}</{name}>\n", escape(text))
}

/// A list of sentences; nothing without one.
pub(super) fn list(sentences: &[String]) -> String {
    if sentences.is_empty() {
        return String::new();
    }
    let items: String = sentences.iter().map(|sentence| element("li", sentence)).collect();
    format!("<ul>\n{items}</ul>\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_html_would_read_is_shown() {
        assert_eq!(escape("<b a=\"1\" c='2'>&\u{1b}[31m"), "&lt;b a=&quot;1&quot; c=&#39;2&#39;&gt;&amp; [31m");
    }
}
