use super::*;

fn numbers(lines: &[Line]) -> Vec<(String, Vec<(usize, u32)>)> {
    let places = |line: &Line| line.places.iter().map(|at| (at.file, at.line)).collect();
    lines.iter().map(|line| (line.text.clone(), places(line))).collect()
}

/// `src/k.rs`, which calls a function of `dep.rs` at line 9, and this one another of its own at line 4.
fn files() -> Files {
    let mut files = Files::new("src/k.rs");
    let dep = files.add("dep.rs").expect("a file");
    let outer = files.add_call(Span::new(9, 1, 4)).expect("a call");
    files.add_call(Span::new(4, 2, 4).in_file(dep).in_call(outer)).expect("another");
    files
}

#[test]
fn tiles_have_places_behind_them() {
    let text = "kernel k {\n  %1: f32 = add %0, %0 @3:9+2\n  for %2 = 0 to 4 @c2:f1:6:1+1 {\n  assert %1 {message = \"a @1:1+1\"}\n}";
    let expected = [
        ("kernel k {", vec![]),
        ("  %1: f32 = add %0, %0", vec![(0, 3)]),
        ("  for %2 = 0 to 4 {", vec![(1, 6), (1, 4), (0, 9)]),
        ("  assert %1 {message = \"a @1:1+1\"}", vec![]),
        ("}", vec![]),
    ];
    assert_eq!(numbers(&of_tiles(&files(), text)), expected.map(|(text, at)| (text.to_string(), at)));
}

#[test]
fn llvm_has_places_in_its_metadata() {
    let text = "define void @k() !dbg !4 {\n  %a = add i32 1, 2, !dbg !7\n  store i32 %a, ptr %p, align 4, !dbg !8, !tbaa !3\n  ret void\n}\n\n\
                !0 = !DIFile(filename: \"0\", directory: \"\")\n!1 = !DIFile(filename: \"1\", directory: \"\")\n\
                !4 = distinct !DISubprogram(name: \"k\", scope: !0, file: !0, line: 3)\n\
                !5 = !DILexicalBlockFile(scope: !4, file: !1, discriminator: 0)\n\
                !7 = !DILocation(line: 3, column: 9, scope: !4)\n!8 = !DILocation(line: 6, column: 1, scope: !5)\n";
    let origins = [(FileId::OWN, CallId::NONE), (FileId::new(1), CallId::new(1))];
    let lines = numbers(&of_llvm(&files(), &origins, text));
    assert_eq!(lines[1], ("  %a = add i32 1, 2".to_string(), vec![(0, 3)]));
    assert_eq!(lines[2], ("  store i32 %a, ptr %p, align 4, !tbaa !3".to_string(), vec![(1, 6), (0, 9)]));
    assert_eq!((lines[3].1.len(), lines.len()), (0, 5));
}

#[test]
fn ptx_has_places_before_it() {
    let text = ".version 8.0\n.visible .entry k()\n{\n\t.reg .b32 %r<3>;\n\t.loc\t1 3 9\n\tmov.u32 %r1, 0;\n\t.loc\t1 9 1\n\
                \t.loc\t2 4 2, function_name $L__info_string0, inlined_at 1 9 1\n\
                \t.loc\t2 6 1, function_name $L__info_string0, inlined_at 2 4 2\n\tadd.s32 %r2, %r1, 1;\n$L1:\n\tret;\n}\n\
                \t.file\t1 \"0\"\n\t.file\t2 \"1\"\n\t.section\t.debug_str\n\t{\n$L__info_string0:\n.b8 1\n\t}\n";
    let lines = numbers(&of_ptx(text));
    let instructions: Vec<_> = lines.iter().filter(|(_, at)| !at.is_empty()).collect();
    assert_eq!(instructions.len(), 3);
    assert_eq!(*instructions[0], ("\tmov.u32 %r1, 0;".to_string(), vec![(0, 3)]));
    assert_eq!(instructions[1].1, [(1, 6), (1, 4), (0, 9)]);
    assert_eq!(lines.last().map(|line| line.0.as_str()), Some("}"), "the names are gone");
    // The places of a circle, which nothing writes, end.
    of_ptx("\t.loc 1 1 1, inlined_at 1 2 1\n\t.loc 1 2 1, inlined_at 1 1 1\n\tret;\n");
}

#[test]
fn machine_code_has_places_in_comments() {
    let text = "\t.target\tsm_90a\n//--------------------- .text.k  -----\n\t.section\t.text.k\nk:\n.text.k:\n\
                \t//## File \"0\", line 3\n        /*0000*/                   LDC R1, c[0x0][0x28] ;\n.L_x_1:\n\
                \t//## File \"1\", line 6 inlined at \"0\", line 9\n\t//## File \"0\", line 9\n\
                        /*0010*/               @P0 EXIT ;\n        /*0020*/    STG.E [R2], R5 ;\n.L_x_0:\n\
                        /*0030*/                   BRA `(.L_x_0);\n        /*0040*/                   NOP;\n.L_x_3:\n\n\
                //--------------------- SYMBOLS ---\n\t.type x,@object\n";
    let file = |name: &str| name.parse().ok();
    let expected = [
        ("/*0000*/      LDC R1, c[0x0][0x28] ;", vec![(0, 3)]),
        (".L_x_1:", vec![]),
        ("/*0010*/  @P0 EXIT ;", vec![(1, 6), (0, 9)]),
        ("/*0020*/      STG.E [R2], R5 ;", vec![(1, 6), (0, 9)]),
        (".L_x_0:", vec![]),
        ("/*0030*/      BRA `(.L_x_0);", vec![(1, 6), (0, 9)]),
    ];
    assert_eq!(numbers(&of_machine(text, file)), expected.map(|(text, at)| (text.to_string(), at)));
    assert!(of_machine("", file).is_empty());
}
