//! Renders a guide's Markdown as HTML: headings with anchors, links that work on a server, and wide tables that scroll.

use std::collections::{BTreeMap, HashMap};

use maud::html;
use pulldown_cmark::{CowStr, Event, HeadingLevel, Options, Parser, Tag, TagEnd, html::push_html};

use super::{Guide, ROOT, Section};
use crate::api::site;

/// Operation ids by method and path. Parameter names are removed from the paths.
pub(super) type Routes = BTreeMap<String, String>;

/// Renders the embedded guide with this name.
pub(super) fn read(name: &str, routes: &Routes) -> Guide {
    let source = site::source(&format!("{ROOT}{name}.md")).unwrap_or_default();
    let directory = name.rsplit_once('/').map_or("", |(directory, _)| directory);
    let mut reader = Reader {
        directory,
        routes,
        events: Vec::new(),
        sections: Vec::new(),
        about: String::new(),
        heading: None,
        anchors: HashMap::new(),
        outside: None,
        is_in_link: false,
    };
    for event in Parser::new_ext(source, Options::ENABLE_TABLES) {
        reader.take(event);
    }
    let Reader { events, sections, about, .. } = reader;
    let mut html = String::new();
    push_html(&mut html, events.into_iter());
    let name = if name == "README" { "" } else { name };
    let title = sections.first().map_or(name, |section| &section.heading).to_owned();
    Guide { name: name.to_owned(), title, about, html, sections }
}

/// Removes the parameter names of a route, because guides may name parameters differently.
pub(super) fn unnamed(route: &str) -> String {
    let mut parts = route.split(['{', '}']);
    let mut text = parts.next().unwrap_or_default().to_owned();
    while let (Some(_), Some(after)) = (parts.next(), parts.next()) {
        text.push_str("{}");
        text.push_str(after);
    }
    text
}

struct Reader<'a> {
    /// Directory of the guide below `docs`.
    directory: &'a str,
    routes: &'a Routes,
    events: Vec<Event<'a>>,
    sections: Vec<Section>,
    about: String,
    /// Index of the event that began the current heading.
    heading: Option<usize>,
    /// Number of headings by anchor, to make repeated anchors unique.
    anchors: HashMap<String, usize>,
    /// Repository path of the current link's target, if the server has no page for it.
    outside: Option<String>,
    is_in_link: bool,
}

impl<'a> Reader<'a> {
    fn take(&mut self, event: Event<'a>) {
        match event {
            Event::Start(Tag::Heading { level, .. }) => {
                self.heading = Some(self.events.len());
                self.sections.push(Section { level: level as u8, ..Section::default() });
                self.events.push(event);
            }
            Event::End(TagEnd::Heading(level)) => self.end_heading(level, event),
            Event::End(TagEnd::Paragraph) => {
                if self.about.is_empty() {
                    self.about = self.sections.last().map_or(String::new(), |section| section.text.trim().to_owned());
                }
                self.break_text();
                self.events.push(event);
            }
            Event::Start(Tag::Link { ref dest_url, .. }) => self.begin_link(&dest_url.clone(), event),
            Event::End(TagEnd::Link) => match self.outside.take() {
                Some(path) => self.events.push(raw(html! { " (" code { (path) } " in the source)" }.into_string())),
                None => {
                    self.is_in_link = false;
                    self.events.push(event);
                }
            },
            Event::Start(Tag::Image { link_type, dest_url, title, id }) => {
                let dest_url = self.resolved(&dest_url).unwrap_or_default().into();
                self.events.push(Event::Start(Tag::Image { link_type, dest_url, title, id }));
            }
            Event::Start(Tag::CodeBlock(_)) => self.events.push(raw("<pre tabindex=\"0\"><code>".to_owned())),
            Event::End(TagEnd::CodeBlock) => {
                self.break_text();
                self.events.push(raw("</code></pre>\n".to_owned()));
            }
            Event::Start(Tag::Table(_)) => {
                let heading = self.sections.last().map_or("", |section| &section.heading);
                let label = html! { (format!("Table: {heading}")) }.into_string();
                self.events
                    .push(raw(format!("<div class=\"wide\" role=\"group\" aria-label=\"{label}\" tabindex=\"0\">")));
                self.events.push(event);
            }
            Event::End(TagEnd::Table) => self.events.extend([event, raw("</div>\n".to_owned())]),
            Event::End(TagEnd::Item | TagEnd::TableCell) => {
                self.break_text();
                self.events.push(event);
            }
            Event::Text(ref text) => {
                self.write(text);
                self.events.push(event);
            }
            Event::Code(text) => self.code(text),
            Event::SoftBreak | Event::HardBreak => {
                self.break_text();
                self.events.push(event);
            }
            // Guides have no HTML but comments.
            Event::Html(text) | Event::InlineHtml(text) if text.starts_with("<!--") => {}
            Event::Html(text) | Event::InlineHtml(text) => self.events.push(Event::Text(text)),
            event => self.events.push(event),
        }
    }

    /// Appends to the text of the current heading or section.
    fn write(&mut self, text: &str) {
        if let Some(section) = self.sections.last_mut() {
            let place = if self.heading.is_some() { &mut section.heading } else { &mut section.text };
            place.push_str(text);
        }
    }

    fn break_text(&mut self) {
        self.write(" ");
    }

    fn end_heading(&mut self, level: HeadingLevel, end: Event<'a>) {
        let (Some(start), Some(section)) = (self.heading.take(), self.sections.last_mut()) else { return };
        if level == HeadingLevel::H1 {
            self.events.truncate(start); // the page has the title
            return;
        }
        // As GitHub makes anchors.
        let kept = section.heading.to_lowercase();
        let kept = kept.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        let name: String = kept.map(|c| if c == ' ' { '-' } else { c }).collect();
        let seen = self.anchors.entry(name.clone()).or_default();
        section.anchor = if *seen == 0 { name } else { format!("{name}-{seen}") };
        *seen += 1;
        let id = Some(CowStr::from(section.anchor.clone()));
        self.events[start] = Event::Start(Tag::Heading { level, id, classes: Vec::new(), attrs: Vec::new() });
        self.events.push(end);
    }

    fn begin_link(&mut self, target: &str, event: Event<'a>) {
        let Event::Start(Tag::Link { link_type, title, id, .. }) = event else { return };
        match self.resolved(target) {
            Some(dest_url) => {
                self.is_in_link = true;
                self.events.push(Event::Start(Tag::Link { link_type, dest_url: dest_url.into(), title, id }));
            }
            None => self.outside = Some(self.source_path(target)),
        }
    }

    /// Returns the path of a relative link from the repository root.
    fn source_path(&self, target: &str) -> String {
        let mut parts: Vec<&str> = std::iter::once("docs").chain(self.directory.split('/')).collect();
        for part in target.split('/') {
            match part {
                ".." => drop(parts.pop()),
                part => parts.push(part),
            }
        }
        parts.retain(|part| !part.is_empty());
        parts.join("/")
    }

    /// Returns the URL path of a link target on the server. `None`: the server has no page for it.
    fn resolved(&self, target: &str) -> Option<String> {
        if target.starts_with('#') || target.contains("://") || target.starts_with("mailto:") {
            return Some(target.to_owned());
        }
        let (file, anchor) = target.find('#').map_or((target, ""), |at| target.split_at(at));
        let path = self.source_path(file);
        let path = format!("{ROOT}{}", path.strip_prefix("docs/")?);
        site::source(&path)?;
        let page = path.strip_suffix(".md").unwrap_or(&path);
        Some(format!("{}{anchor}", page.strip_suffix("README").unwrap_or(page)))
    }

    /// Emits inline code, linked to the operation if it is a route.
    fn code(&mut self, text: CowStr<'a>) {
        self.write(&text);
        let route = text.replace("…/", "/v1/apps/{}/");
        let route = unnamed(route.split('?').next().unwrap_or_default());
        match self.routes.get(&route).filter(|_| !self.is_in_link) {
            Some(operation) => {
                let link = html! { a href={ "/docs/operations/" (operation) } { code { (text.as_ref()) } } };
                self.events.push(raw(link.into_string()));
            }
            None => self.events.push(Event::Code(text)),
        }
    }
}

/// HTML that is emitted unescaped.
fn raw<'a>(html: String) -> Event<'a> {
    Event::InlineHtml(html.into())
}
