//! Kernels at the limit of shared memory compile in the form that has room, and where none has, the help names what does.

mod support;

use kernel_codegen::{CodegenError, Compiled, Options, Target, compile};
use support::{assemble, kernel};

/// A product by descriptors, with rows of 128 bytes.
#[derive(Clone, Copy, Debug)]
struct Product {
    factors: &'static str,
    stored: &'static str,
    tile: [u32; 2],
    warps: u32,
    /// The stages of the launch.
    default_stages: u32,
    /// The stages that the loop asks for; 0 if it asks for none.
    own_stages: u32,
    persistent: bool,
    marked: bool,
    /// Whether the sum goes out through a pointer.
    by_pointer: bool,
}

const LARGE: Product = Product {
    factors: "f32",
    stored: "f32",
    tile: [256, 256],
    warps: 8,
    default_stages: 3,
    own_stages: 0,
    persistent: false,
    marked: false,
    by_pointer: false,
};

/// Stores `%r` to `%p`, whose rows are `%n` long.
const POINTERS: &str = "%ri: i32[M] = arange {lo = 0, hi = M}
    %is: i32[M] = splat %i
    %ra: i32[M] = add %ri, %is
    %rc: i32[M, 1] = expand_dims %ra {axis = 1}
    %ns: i32[M, 1] = splat %n
    %ro: i32[M, 1] = mul %rc, %ns
    %ci: i32[N] = arange {lo = 0, hi = N}
    %js: i32[N] = splat %j
    %ca: i32[N] = add %ci, %js
    %cr: i32[1, N] = expand_dims %ca {axis = 0}
    %rb: i32[M, N] = broadcast %ro
    %cb: i32[M, N] = broadcast %cr
    %at: i32[M, N] = add %rb, %cb
    %ps: *p[M, N] = splat %p
    %pp: *p[M, N] = add_ptr %ps, %at
    store %pp, %r";

impl Product {
    fn text(&self) -> String {
        let Product { factors, stored, tile: [m, n], own_stages, persistent, marked, by_pointer, .. } = *self;
        let k = match factors {
            "f32" => 32,
            "f16" => 64,
            _ => 128,
        };
        let asked: Vec<String> = [
            (own_stages > 0).then(|| format!("stages = {own_stages}")),
            marked.then(|| "warp_specialize = true".to_string()),
        ]
        .into_iter()
        .flatten()
        .collect();
        let asked = if asked.is_empty() { String::new() } else { format!("{{{}}}", asked.join(", ")) };
        let rounded = match stored {
            "f32" => format!("%r: f32[{m}, {n}] = reshape %sum {{shape = [{m}, {n}]}}"),
            _ => format!("%r: {stored}[{m}, {n}] = cast %sum {{to = {stored}}}"),
        };
        let store = match by_pointer {
            true => POINTERS.replace('M', &m.to_string()).replace('N', &n.to_string()),
            false => "desc_store %c, %r, %i, %j".to_string(),
        };
        let body = format!(
            "%row: i32 = div %tile, %columns
    %column: i32 = rem %tile, %columns
    %i: i32 = mul %row, %bm
    %j: i32 = mul %column, %bn
    %nothing: f32 = const 0.0
    %zeros: f32[{m}, {n}] = splat %nothing
    %sum: f32[{m}, {n}] = for %zero, %k, %bk, %zeros {asked} (%t: i32, %acc: f32[{m}, {n}]) {{
      %x: {factors}[{m}, {k}] = desc_load %a, %i, %t
      %y: {factors}[{n}, {k}] = desc_load %b, %j, %t
      %w: {factors}[{k}, {n}] = permute %y {{perm = [1, 0]}}
      %d: f32[{m}, {n}] = dot %x, %w, %acc {{precision = tf32}}
      yield %d
    }}
    {rounded}
    {store}"
        );
        let tiles = match persistent {
            true => format!("for %start, %tiles, %programs (%tile: i32) {{\n{body}\nyield\n}}"),
            false => format!("%tile: i32 = add %start, %zero\n{body}"),
        };
        let facts = "{div = 16, len_div = 16, stride_div = 16}";
        format!(
            "kernel product \"product.rs\" unsafe bound {{
  param %a a: desc {factors}[{m}, {k}] {facts}
  param %b b: desc {factors}[{n}, {k}] {facts}
  param %c c: desc_mut {stored}[{m}, {n}] {facts}
  param %p p: ptr_mut {stored} {{div = 16}}
  param %n n: i32 {{div = 16}}
  param %k k: i32
  param %tiles tiles: i32
  %zero: i32 = const 0
  %bm: i32 = const {m}
  %bn: i32 = const {n}
  %bk: i32 = const {k}
  %columns: i32 = div %n, %bn
  %start: i32 = program_id {{axis = 0}}
  %programs: i32 = num_programs {{axis = 0}}
  {tiles}
  return
}}
"
        )
    }

    fn compiled(&self, disabled: &[&str]) -> Result<Compiled, CodegenError> {
        let disabled_passes = disabled.iter().map(|pass| pass.to_string()).collect();
        let options =
            Options { num_warps: self.warps, num_stages: self.default_stages, disabled_passes, ..Options::default() };
        compile(&kernel(&self.text()), &Target::sm_90a(), &options)
    }

    /// Without LLVM's optimiser, which changes nothing about shared memory.
    fn quickly(&self) -> Result<Compiled, CodegenError> {
        self.compiled(&["llvm"])
    }
}

fn is_divided(compiled: &Compiled) -> bool {
    compiled.placed_ir().contains("warp_groups")
}

/// The form of each kernel that nobody asked to divide: whole where that has room, else divided. Marked ones and those
/// that go on to another tile are divided.
#[test]
fn the_form_that_has_room_is_taken() {
    let f16 = Product { factors: "f16", ..LARGE };
    let short = Product { stored: "f16", ..f16 };
    let f8 = Product { factors: "f8e4m3", ..LARGE };
    let wide = Product { tile: [128, 256], ..LARGE };
    let [divided, whole] = [true, false];
    for (product, stages, form) in [
        // 256 KiB on their way out.
        (LARGE, 2..=4, divided),
        (f16, 2..=4, divided),
        (f8, 2..=4, divided),
        // 128 KiB, behind rings of up to 192 KiB.
        (short, 2..=3, whole),
        (Product { stored: "f16", ..f8 }, 2..=3, whole),
        (wide, 2..=4, whole),
        (Product { warps: 16, ..wide }, 2..=4, whole),
        (Product { tile: [256, 128], ..LARGE }, 2..=4, whole),
        // A ring that has no room at all; the divided kernel takes fewer slots than the launch would have.
        (short, 4..=6, divided),
        (wide, 5..=6, divided),
    ] {
        for default_stages in stages {
            let product = Product { default_stages, ..product };
            for (persistent, marked) in [(false, false), (false, true), (true, false)] {
                let product = Product { persistent, marked, ..product };
                let compiled = product.quickly().unwrap_or_else(|error| panic!("{product:?}: {error}"));
                assert_eq!(is_divided(&compiled), form == divided || persistent || marked, "{product:?}");
                assert!(compiled.shared_bytes <= Target::sm_90a().max_shared_bytes(), "{product:?}");
                assert!(compiled.shared_bytes > 64 * 1024, "{product:?} is far from the limit");
            }
        }
    }
}

/// Stages that a loop asks for are kept, so that some kernels have no room in any form.
#[test]
fn stages_of_the_loop_itself_are_kept() {
    for (own_stages, slots) in [(2, Some(2)), (3, Some(3)), (4, None)] {
        let product = Product { own_stages, ..LARGE };
        match (product.quickly(), slots) {
            (Ok(compiled), Some(slots)) => {
                let report = compiled.report().to_string();
                assert!(is_divided(&compiled) && report.contains(&format!("through {slots} slots")), "{report}");
            }
            (Err(_), None) => {}
            (result, _) => panic!("{own_stages}: {:?}", result.map(|compiled| compiled.report().to_string())),
        }
    }
}

/// Who does as the help says has a kernel that compiles.
#[test]
fn the_help_names_what_fits() {
    let marked = Product { marked: true, own_stages: 4, ..LARGE };
    let wide = Product { own_stages: 5, tile: [128, 256], ..LARGE };
    let help = |product: Product, disabled: &[&str]| match product.compiled(disabled) {
        Err(CodegenError::Refused(refusal)) => refusal.help.unwrap_or_default(),
        Err(error) => panic!("{error}"),
        Ok(compiled) => panic!("compiles\n{}", compiled.report()),
    };
    let whole = ["llvm", "warp_specialize"];
    for (product, disabled) in [(marked, &whole[..1]), (wide, &whole[..1]), (wide, &whole[..])] {
        let help = help(product, disabled);
        let stages = help.split_once("#[stages(").and_then(|(_, rest)| rest.split_once(')')?.0.parse().ok());
        let own_stages = stages.unwrap_or_else(|| panic!("{help}"));
        let compiled = Product { own_stages, ..product }.compiled(disabled);
        assert!(own_stages >= 2 && compiled.is_ok(), "{help}: {:?}", compiled.err());
    }
    // A kernel that stays whole, whose block has no room whatever the number of stages.
    for (default_stages, fitting) in [(3, None), (4, Some("`#[stages(3)]`"))] {
        let help = help(Product { default_stages, ..LARGE }, &whole);
        assert!(help.contains("`c`") && help.contains("262144 bytes") && help.contains("through a pointer"), "{help}");
        assert!(
            help.contains("#[stages(") == fitting.is_some() && help.contains(fitting.unwrap_or_default()),
            "{help}"
        );
    }
    let compiled = Product { by_pointer: true, ..LARGE }.compiled(&whole).unwrap_or_else(|error| panic!("{error}"));
    assert!(!is_divided(&compiled));
}

#[test]
fn a_kernel_divided_for_lack_of_room_assembles() {
    let product = Product { tile: [128, 256], default_stages: 6, ..LARGE };
    let compiled = product.compiled(&[]).unwrap_or_else(|error| panic!("{error}"));
    assert!(is_divided(&compiled), "{}", compiled.report());
    if let Some(assembled) = assemble(&compiled) {
        assert_eq!((assembled.registers, assembled.spill_bytes), (168, 0));
    }
}
