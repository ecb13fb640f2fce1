//! A document, its sections and blocks, and the HTML page that is generated from them.

use super::data;
use super::data::Data;
use super::escape::{slug, text, words};
use super::grid::{Badge, Grid};
use super::picture;
use super::picture::Picture;
use base64::prelude::{BASE64_STANDARD, Engine as _};
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;

const PAGE_STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// A report page.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Document {
    /// The title.
    pub title: String,
    /// A summary in one or two sentences.
    pub lead: String,
    /// Names and values below the summary.
    pub facts: Vec<(String, String)>,
    /// Whether the sections are folded, so that only their headings are visible.
    pub is_folded: bool,
    /// Whether links to the sections stay at the top of the window.
    pub has_contents: bool,
    /// Blocks before the first section.
    pub blocks: Vec<Block>,
    /// The sections.
    pub sections: Vec<Section>,
    /// Lines of the footer, which say how the page was made.
    pub foot: Vec<String>,
}

/// A part of a document, with a heading.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Section {
    /// The heading.
    pub heading: String,
    /// The contents.
    pub blocks: Vec<Block>,
}

/// A part of a section.
#[derive(Clone, PartialEq, Debug)]
pub enum Block {
    /// A paragraph.
    Paragraph(String),
    /// A row of badges, each followed by text.
    Badges(Vec<(Badge, String)>),
    /// The same, as buttons: each shows only the rows of the page's tables that have its badge.
    Filter(Vec<(Badge, String)>),
    /// A table.
    Grid(Grid),
    /// A figure, and a remark about it.
    Figure(Picture, String),
    /// A shell command.
    Command(String),
    /// A collapsed block: its title and its contents.
    Collapsed(String, Vec<Block>),
    /// A nested section.
    Section(Section),
}

/// The identifiers of the page.
struct Identifiers {
    /// Identifiers in use.
    ids: BTreeSet<String>,
    /// Headings and figure names with their identifiers.
    links: Vec<(String, String)>,
}

impl Identifiers {
    /// Returns a unique identifier for a heading or a figure.
    fn id(&mut self, of: &str) -> String {
        let slug = slug(of);
        let base = if slug.is_empty() { "part".to_owned() } else { slug };
        let numbered = (2..).map(|number| format!("{base}-{number}"));
        let id = std::iter::once(base.clone()).chain(numbered).find(|id| !self.ids.contains(id));
        let id = id.expect("there are unused numbers");
        self.ids.insert(id.clone());
        id
    }
}

impl Document {
    /// Returns the line of the footer that names the program.
    pub fn version_line() -> String {
        format!("kiban {}. This page is one self-contained file.", env!("CARGO_PKG_VERSION"))
    }

    /// Returns the HTML page.
    pub fn html(&self) -> String {
        let style = format!("{}{PAGE_STYLE}", picture::STYLE);
        let mut place = Identifiers { ids: ["main", "tip"].map(str::to_owned).into(), links: Vec::new() };
        // Assign identifiers first, so that tables can link to later sections.
        name_blocks(&self.blocks, &mut place);
        for section in &self.sections {
            name(section, &mut place);
        }
        let links = place.links;
        let mut names = links.iter();
        let link = |to: &str| links.iter().find(|(of, _)| of == to).map(|(_, id)| id.clone());
        let contents: String = self
            .sections
            .iter()
            .filter_map(|section| {
                Some(format!(
                    "<li><a href=\"#{}\">{}</a></li>\n",
                    link(&section.heading)?,
                    text(&section.heading)
                ))
            })
            .collect();
        let mut body = String::new();
        for block in &self.blocks {
            body += &block.html(2, &mut names, &link);
        }
        for section in &self.sections {
            body += &if self.is_folded {
                section.folded(&mut names, &link)
            } else {
                section.html(2, &mut names, &link)
            };
        }
        let contents = if self.has_contents {
            format!("<nav aria-label=\"Contents\">\n<ol>\n{contents}</ol>\n</nav>\n")
        } else {
            String::new()
        };
        let facts = self
            .facts
            .iter()
            .map(|(name, value)| format!("<div><dt>{}</dt><dd>{}</dd></div>\n", text(name), text(value)));
        let facts: String = facts.collect();
        let facts = if facts.is_empty() { facts } else { format!("<dl>\n{facts}</dl>\n") };
        let foot: String = self.foot.iter().map(|line| format!("<p>{}</p>\n", text(line))).collect();
        format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"{}\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta name=\"color-scheme\" content=\"light dark\">\n<title>{title}</title>\n<style>{style}</style>\n</head>\n<body>\n\
             <a class=\"skip\" href=\"#main\">Skip to the content</a>\n<header>\n<h1>{title}</h1>\n<p \
             class=\"lead\">{}</p>\n{facts}</header>\n{contents}<main \
             id=\"main\">\n{body}</main>\n<footer>\n{foot}</footer>\n\
             <div id=\"tip\" role=\"status\" hidden></div>\n<script>{SCRIPT}</script>\n</body>\n</html>\n",
            policy(&style),
            text(&self.lead),
            title = text(&self.title),
        )
    }

    /// Returns all figures in the order of the page.
    pub fn pictures(&self) -> Vec<&Picture> {
        let mut pictures = Vec::new();
        let sections = self.sections.iter().flat_map(|section| &section.blocks);
        self.blocks.iter().chain(sections).for_each(|block| block.pictures(&mut pictures));
        pictures
    }
}

/// Returns the Content Security Policy: no requests, only this style and this script.
fn policy(style: &str) -> String {
    let hash = |source: &str| BASE64_STANDARD.encode(Sha256::digest(source.as_bytes()));
    format!(
        "default-src 'none'; style-src 'sha256-{}'; script-src 'sha256-{}'; base-uri 'none'; form-action \
         'none'",
        hash(style),
        hash(SCRIPT)
    )
}

/// Assigns identifiers to a section, its figures and its nested sections, in the order of the page.
fn name(section: &Section, place: &mut Identifiers) {
    let id = place.id(&section.heading);
    place.links.push((section.heading.clone(), id));
    name_blocks(&section.blocks, place);
}

fn name_blocks(blocks: &[Block], place: &mut Identifiers) {
    for block in blocks {
        match block {
            Block::Section(section) => name(section, place),
            Block::Collapsed(_, blocks) => name_blocks(blocks, place),
            Block::Figure(picture, _) => {
                let id = place.id(&picture.name);
                place.links.push((picture.name.clone(), id));
            }
            _ => {}
        }
    }
}

/// The identifiers of the remaining headings and figures, in the order of the page.
type Names<'a> = std::slice::Iter<'a, (String, String)>;
type Link<'a> = &'a dyn Fn(&str) -> Option<String>;

impl Section {
    fn html(&self, level: usize, names: &mut Names<'_>, link: Link<'_>) -> String {
        let (_, id) = names.next().expect("every section has been named");
        let level = level.min(6);
        let blocks: String = self.blocks.iter().map(|block| block.html(level + 1, names, link)).collect();
        format!(
            "<section aria-labelledby=\"{id}\">\n<h{level} id=\"{id}\">{}</h{level}>\n{blocks}</section>\n",
            text(&self.heading)
        )
    }
}

impl Section {
    /// Returns a section of which only the heading is visible until it is opened.
    fn folded(&self, names: &mut Names<'_>, link: Link<'_>) -> String {
        let (_, id) = names.next().expect("every section has been named");
        let blocks: String = self.blocks.iter().map(|block| block.html(3, names, link)).collect();
        format!(
            "<details class=\"section\">\n<summary><h2 id=\"{id}\">{}</h2></summary>\n{blocks}</details>\n",
            text(&self.heading)
        )
    }
}

impl Block {
    fn html(&self, level: usize, names: &mut Names<'_>, link: Link<'_>) -> String {
        match self {
            Block::Paragraph(paragraph) => format!("<p>{}</p>\n", words(paragraph)),
            Block::Command(command) => format!("<pre>{}</pre>\n", text(command)),
            Block::Badges(badges) => {
                let items =
                    badges.iter().map(|(badge, note)| format!("<li>{} {}</li>\n", badge.html(), words(note)));
                format!("<ul class=\"badges\">\n{}</ul>\n", items.collect::<String>())
            }
            Block::Filter(badges) => {
                // The page's script enables the buttons.
                let items = badges.iter().map(|(badge, words)| {
                    let badge = badge.html();
                    format!(
                        "<li><button type=\"button\" aria-pressed=\"false\" disabled>{badge}</button> {}</li>\n",
                        text(words)
                    )
                });
                let items: String = items.collect();
                format!("<ul class=\"badges filter\">\n<li>Show only:</li>\n{items}</ul>\n")
            }
            Block::Grid(grid) => grid.html(link),
            Block::Figure(picture, says) => {
                let (_, id) = names.next().expect("every figure has been named");
                figure(picture, says, id)
            }
            Block::Collapsed(name, blocks) => {
                let blocks: String = blocks.iter().map(|block| block.html(level, names, link)).collect();
                format!(
                    "<details class=\"section\">\n<summary>{}</summary>\n{blocks}</details>\n",
                    text(name)
                )
            }
            Block::Section(section) => section.html(level, names, link),
        }
    }

    fn pictures<'a>(&'a self, pictures: &mut Vec<&'a Picture>) {
        match self {
            Block::Figure(picture, _) => pictures.push(picture),
            Block::Collapsed(_, blocks) => blocks.iter().for_each(|block| block.pictures(pictures)),
            Block::Section(section) => section.blocks.iter().for_each(|block| block.pictures(pictures)),
            _ => {}
        }
    }
}

/// Returns a figure with its caption, its data as a table, and download links.
fn figure(picture: &Picture, says: &str, id: &str) -> String {
    let Data { head, rows } = &picture.data;
    let mut grid = Grid { caption: format!("{}: data", picture.title), ..Grid::default() };
    let numbers = |at: usize| rows.iter().all(|row| row.get(at).is_none_or(|value| !value.is_string()));
    grid.columns = head.iter().enumerate().map(|(at, head)| (head.clone(), numbers(at))).collect();
    rows.iter().for_each(|row| grid.row(row.iter().map(|value| data::shown(value).into())));
    let save = |kind: &str, mime: &str, what: String| {
        format!(
            "<a download=\"{}.{kind}\" href=\"data:{mime};charset=utf-8;base64,{}\">{}</a>",
            text(&picture.name),
            BASE64_STANDARD.encode(what),
            kind.to_uppercase()
        )
    };
    let says = if says.is_empty() { String::new() } else { format!("<span>{}</span>", text(says)) };
    format!(
        "<figure id=\"{id}\">\n<figcaption><b>{}</b>{says}</figcaption>\n<div class=\"wide\" role=\"region\" \
         tabindex=\"0\" aria-label=\"{}\">\n{}</div>\n\
         <details>\n<summary>Data as a table</summary>\n{}</details>\n<p class=\"downloads\">Data of this \
         figure: {}, {}</p>\n</figure>\n",
        text(&picture.title),
        text(&picture.title),
        picture.element(&format!("{id}-picture")),
        grid.html(&|_| None),
        save("csv", "text/csv", picture.data.csv()),
        save("json", "application/json", picture.data.json())
    )
}

#[cfg(test)]
mod tests {
    use super::picture::{Bars, Heat, Line, Lines, Mark, Outline, Scale, Sequence, Stacked};
    use super::*;
    use crate::heat::Best;
    use crate::report::{Cell, Tone};

    const HOSTILE: &str = "</script></style></svg>\"'&<img src=x onerror=alert(1)>\u{0}\u{1b}\u{202e}";

    /// Returns a document in which every text contains markup.
    fn hostile() -> Document {
        let h = || HOSTILE.to_owned();
        let line = Line { name: h(), series: 0, points: vec![(1.0, Some(2.0)), (2.0, None)], dashed: true };
        let pictures = [
            Lines {
                name: h(),
                title: h(),
                description: h(),
                x: (h(), Scale::Linear),
                y: (h(), Scale::From(1.0)),
                lines: vec![line.clone()],
                marks: vec![Mark { x: 1.0, y: 1.0, what: h() }],
            }
            .picture(),
            Heat {
                name: h(),
                title: h(),
                description: h(),
                x: (h(), vec![h()]),
                y: (h(), vec![h()]),
                unit: h(),
                cells: vec![vec![Some(1.0)]],
                steps: vec![0.0],
                maps: 1,
                best: Best::High,
                outlines: vec![Outline { columns: 0..1, rows: 0..1, name: h() }],
                boundary: h(),
                notes: vec![vec![Some(picture::Note { mark: h(), words: h(), is_beyond: true })]],
            }
            .picture(),
            Sequence {
                name: h(),
                title: h(),
                description: h(),
                ends: [h(), h()],
                arrows: vec![picture::Arrow {
                    after_ms: 1.0,
                    direction: picture::Direction::Left,
                    what: h(),
                    wait: Some(h()),
                }],
            }
            .picture(),
            Stacked {
                name: h(),
                title: h(),
                description: h(),
                x: h(),
                y: h(),
                layers: vec![line],
                limit: Some((1.0, h())),
            }
            .picture(),
            Bars {
                name: h(),
                title: h(),
                description: h(),
                unit: h(),
                parts: vec![(h(), 0), (h(), 1)],
                cases: vec![(h(), vec![1.0, 2.0])],
            }
            .picture(),
        ];
        let mut grid = Grid::new(HOSTILE, &[HOSTILE]);
        grid.row([Cell {
            words: h(),
            link: Some(h()),
            badge: Some(Badge::new(Tone::Own, HOSTILE)),
            note: Some(h()),
        }]);
        let mut blocks: Vec<Block> =
            pictures.into_iter().map(|picture| Block::Figure(picture, h())).collect();
        blocks.extend([
            Block::Paragraph(h()),
            Block::Command(h()),
            Block::Badges(vec![(Badge::new(Tone::Plain, HOSTILE), h())]),
            Block::Filter(vec![(Badge::new(Tone::Plain, HOSTILE), h())]),
            Block::Grid(grid),
            Block::Collapsed(h(), vec![Block::Section(Section { heading: h(), blocks: Vec::new() })]),
        ]);
        let section = Section { heading: h(), blocks };
        Document {
            title: h(),
            lead: h(),
            facts: vec![(h(), h())],
            sections: vec![section],
            foot: vec![h()],
            ..Document::default()
        }
    }

    #[test]
    fn no_label_escapes_its_element() {
        let html = hostile().html();
        assert_eq!(html.matches("</script>").count(), 1);
        assert_eq!(html.matches("</style>").count(), 1);
        assert_eq!(html.matches("</svg>").count(), 5);
        assert!(!html.contains("<img"));
        assert!(!html.contains(['\0', '\u{1b}', '\u{202e}']));
        for picture in hostile().pictures() {
            let svg = picture.standalone();
            assert_eq!((svg.matches("</svg>").count(), svg.matches("</style>").count()), (1, 1), "{svg}");
            assert!(!svg.contains("<img"));
        }
    }

    #[test]
    fn documents_are_deterministic_and_identifiers_unique() {
        let html = hostile().html();
        assert_eq!(html, hostile().html());
        let mut ids: Vec<&str> =
            html.split(" id=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
        let all = ids.len();
        ids.sort_unstable();
        ids.dedup();
        assert!(all > 10 && ids.len() == all, "{ids:?}");
    }

    #[test]
    fn links_have_existing_targets() {
        let mut grid = Grid::new("t", &["a"]);
        grid.row([Cell::from("there").to("Second part")]);
        grid.row([Cell::from("nowhere").to("Third part")]);
        let section = |heading: &str, blocks| Section { heading: heading.into(), blocks };
        let sections = vec![section("First", vec![Block::Grid(grid)]), section("Second part", Vec::new())];
        let html = Document { title: "t".into(), sections, ..Document::default() }.html();
        assert!(
            html.contains("<a href=\"#second-part\">there</a>") && html.contains("<h2 id=\"second-part\">"),
            "{html}"
        );
        assert!(html.contains("<th scope=\"row\">nowhere</th>"), "{html}");
    }

    #[test]
    fn folded_sections_show_their_headings_only() {
        let html = Document { is_folded: true, ..hostile() }.html();
        assert_eq!((html.matches("<summary><h2 ").count(), html.matches("<nav ").count()), (1, 0));
        assert_eq!(html.matches("<details").count(), html.matches("</details>").count());
        assert!(html.contains("<dl>"));
        let html = Document { is_folded: true, has_contents: true, ..hostile() }.html();
        assert_eq!((html.matches("<summary><h2 ").count(), html.matches("<nav ").count()), (1, 1));
    }

    #[test]
    fn the_page_makes_no_requests() {
        let html = hostile().html();
        for word in ["http://", "https://", "src=\"", "@import", "url("] {
            assert!(!html.contains(word), "{word}");
        }
        assert!(html.contains("default-src 'none'"));
        assert!(SCRIPT.lines().count() < 100, "the script stays small");
    }
}
