//! The page in a real browser: a Chromium without a window, where there is one.
//!
//! A script behind the page's own does what a person would, and writes what it finds into the page, which the browser then
//! prints.

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;

use tilewright_inspect::source::Roots;
use tilewright_inspect::{InspectError, page};

/// What a Chromium may be called.
const NAMES: [&str; 5] = ["chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "chrome"];

/// The window, in points.
const SIZE: (u32, u32) = (1280, 900);

fn browser() -> Option<&'static str> {
    let runs = |name: &&str| Command::new(name).arg("--version").output().is_ok_and(|output| output.status.success());
    let found = NAMES.into_iter().find(runs);
    if found.is_none() {
        eprintln!("skipped: no Chromium ({})", NAMES.join(", "));
    }
    found
}

/// The page of the archive, with a script behind it.
fn written(name: &str, script: &str) -> Result<PathBuf, InspectError> {
    let entries = common::entries();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    let html = page::page("kernels.twa", &entries, &common::tools(), &Roots::new(root));
    let path = std::env::temp_dir().join(format!("tilewright-page-{name}-{}.html", std::process::id()));
    let html = html.replace("</body>", &format!("<script>\n{script}</script></body>"));
    std::fs::write(&path, html).map_err(|error| InspectError::File { path: path.display().to_string(), error })?;
    Ok(path)
}

/// How often a browser that ends by a fault of its own is begun again.
const ATTEMPTS: usize = 3;

/// The page as the browser has it in the end.
fn shown(browser: &str, page: &Path, dark: bool) -> String {
    let profile = page.with_extension(if dark { "dark" } else { "light" });
    let run = || {
        let output = Command::new(browser)
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"])
            .args(["--virtual-time-budget=5000".to_string(), format!("--window-size={},{}", SIZE.0, SIZE.1)])
            .arg(format!("--user-data-dir={}", profile.display()))
            .arg(format!("--blink-settings=preferredColorScheme={}", if dark { 0 } else { 1 }))
            .args(["--dump-dom".to_string(), format!("file://{}", page.display())])
            .output()
            .expect("the browser runs");
        let _ = std::fs::remove_dir_all(&profile);
        match output.status.success() && !output.stdout.is_empty() {
            true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
            false => Err(format!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr))),
        }
    };
    let mut crashes = Vec::new();
    for _ in 0..ATTEMPTS {
        match run() {
            Ok(text) => return text,
            Err(why) => crashes.push(why),
        }
    }
    panic!("{browser} shows nothing: {crashes:#?}");
}

/// What the script has found: lines `name: value`.
fn findings(browser: &str, page: &Path, dark: bool) -> Vec<(String, String)> {
    let text = shown(browser, page, dark);
    // The script has these words too, before.
    let found = text.rsplit_once("<pre id=\"findings\">").and_then(|(_, rest)| rest.split_once("</pre>"));
    let (found, _) = found.expect("the script writes what it has found");
    found.lines().filter_map(|line| line.split_once(": ")).map(|(name, value)| (name.into(), value.into())).collect()
}

/// Does what a person does, for each variant in turn.
const SCRIPT: &str = r#"
const findings = [];
const note = (name, value) => findings.push(name + ': ' + value);
addEventListener('error', (event) => note('error', event.message));
const root = document.documentElement;
for (const variant of document.querySelectorAll('.variant')) variant.open = true;
note('wider than the window', root.scrollWidth > innerWidth);
const luminance = (color) => {
  const [r, g, b] = color.match(/[\d.]+/g).map((c) => c / 255).map((c) => c <= .03928 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4);
  return .2126 * r + .7152 * g + .0722 * b;
};
const style = getComputedStyle(document.body);
const [text, back] = [luminance(style.color), luminance(style.backgroundColor)];
note('dark', back < text);
note('contrast', ((Math.max(text, back) + .05) / (Math.min(text, back) + .05)).toFixed(1));
for (const box of document.querySelectorAll('.stages')) {
  const pane = (name) => box.querySelector('.pane[data-stage="' + name + '"]');
  const lines = (name, mark) => [...pane(name)?.querySelectorAll(mark) ?? []];
  note('stages', [...box.querySelectorAll('.pane')].map((one) => one.dataset.stage).join(' '));
  note('shown', [...box.querySelectorAll('.pane:not([hidden])')].map((one) => one.dataset.stage).join(' '));
  for (const button of box.querySelectorAll('.chosen button[aria-pressed=false]')) button.click();
  note('all shown', [...box.querySelectorAll('.pane')].every((one) => !one.hidden && one.clientWidth > 100));
  note('wider with all', root.scrollWidth > innerWidth);
  // The source line that multiplies, or else that stores.
  const line = lines('source', '[data-l]').find((one) => /dot\(|sqrt\(|store\(/.test(one.textContent));
  line.dispatchEvent(new MouseEvent('mouseover', { bubbles: true }));
  const marked = ['source', 'bound', 'placed', 'llvm', 'ptx', 'sass'].map((name) => name + ' ' + lines(name, '.here').length);
  note('marked', marked.join(', '));
  line.click();
  const pinned = lines('ptx', '.pin');
  const frame = pane('ptx').querySelector('pre').getBoundingClientRect();
  const at = pinned[0].getBoundingClientRect();
  note('pinned', pinned.length > 0 && at.top >= frame.top && at.bottom <= frame.bottom);
  line.click();
  note('pinned after a second click', box.querySelectorAll('.pin').length);
  // From the other end: what a line of PTX is from.
  const last = lines('ptx', '[data-l]').at(-1);
  last.dispatchEvent(new MouseEvent('mouseover', { bubbles: true }));
  const own = last.dataset.l.split(' ')[0];
  note('back', lines('source', '.here').length > 0 && lines('source', '.here').every((one) => one.dataset.l.split(' ').includes(own)));
  box.querySelector('.chosen button[data-stage=ptx]').click();
  note('hidden', pane('ptx').hidden);
}
document.body.insertAdjacentHTML('beforeend', '<pre id="findings"></pre>');
document.getElementById('findings').textContent = '\n' + findings.join('\n') + '\n';
"#;

#[test]
fn people_find_what_belongs_together() -> Result<(), InspectError> {
    let Some(browser) = browser() else { return Ok(()) };
    let page = written("browser", SCRIPT)?;
    for dark in [false, true] {
        let found = findings(browser, &page, dark);
        let all = |wanted: &str| {
            found.iter().filter(|(name, _)| name == wanted).map(|(_, value)| value.as_str()).collect::<Vec<_>>()
        };
        assert_eq!(all("error"), [""; 0], "{found:?}");
        assert_eq!(
            (all("wider than the window"), all("dark")),
            (vec!["false"], vec![if dark { "true" } else { "false" }])
        );
        // What accessibility guidelines ask of ordinary text is 4.5.
        assert!(all("contrast")[0].parse::<f64>().is_ok_and(|contrast| contrast > 7.0), "{found:?}");
        let has_code = common::tools().ptxas.is_ok() && common::tools().nvdisasm.is_ok();
        let sass = if has_code { " sass" } else { "" };
        let variants = all("stages").len();
        assert!(variants >= 3, "{found:?}");
        assert!(
            all("stages").iter().all(|stages| *stages == format!("source bound placed llvm ptx{sass}")),
            "{found:?}"
        );
        assert!(all("shown").iter().all(|stages| *stages == format!("source placed{sass}")), "{found:?}");
        for (what, wanted) in [
            ("all shown", "true"),
            ("wider with all", "false"),
            ("pinned", "true"),
            ("pinned after a second click", "0"),
            ("back", "true"),
            ("hidden", "true"),
        ] {
            assert_eq!(all(what), vec![wanted; variants], "{what}: {found:?}");
        }
        for marked in all("marked") {
            let none: Vec<&str> = marked.split(", ").filter(|count| count.ends_with(" 0")).collect();
            assert_eq!(none, if has_code { vec![] } else { vec!["sass 0"] }, "{marked}");
            assert!(marked.starts_with("source 1, "), "a line of the source is one line: {marked}");
        }
    }
    let _ = std::fs::remove_file(page);
    Ok(())
}
