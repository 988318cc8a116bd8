//! The launcher around the IR.

use quote::ToTokens;
use syn::{File, Item};

use kernel_core::ir::Subnormals;

use super::support::{expand, func_with, literal_after};

const ADD: &str = "/// Adds.\npub fn add_rows<T: Num, const BLOCK: usize, const FLAG: bool>(x: Ptr<T>, out: PtrMut<T>, n: i32, eps: Const<f32>) {
    let i = arange(0, BLOCK);
    store(out + i, load(x + i, mask = i < n), mask = i < n);
}";

/// The expansion as Rust items.
fn items(attr: &str, source: &str) -> Vec<Item> {
    let (tokens, _) = expand(attr, source);
    let text = tokens.to_string();
    let file: File = syn::parse2(tokens).unwrap_or_else(|e| panic!("{e}\n{text}"));
    file.items
}

fn text(attr: &str, source: &str) -> String {
    let text: String = items(attr, source).iter().map(|i| i.to_token_stream().to_string()).collect();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn a_launcher_has_a_function_and_a_struct() {
    let items = items("", ADD);
    assert!(matches!(&items[0], Item::Fn(f) if f.sig.ident == "add_rows" && f.sig.inputs.len() == 4));
    assert!(matches!(&items[1], Item::Struct(s) if s.ident == "AddRowsConsts" && s.fields.len() == 2));
    assert!(matches!(&items[2], Item::Impl(_)));
    assert!(matches!(&items[3], Item::Struct(s) if s.ident == "AddRowsArgs" && s.fields.len() == 4));
    assert!(matches!(&items[5], Item::Struct(s) if s.ident == "AddRowsAssumed" && s.fields.len() == 3));
    assert!(matches!(&items[7], Item::Impl(i) if i.trait_.is_some()), "how constexprs are numbers");
    assert!(matches!(&items[8], Item::Struct(s) if s.ident == "AddRowsSpace"));
    let rest = [4, 6, 9, 10, 11, 12].map(|at| &items[at]);
    assert!(rest.iter().all(|item| matches!(item, Item::Impl(_))));
    assert_eq!(items.len(), 13);
}

#[test]
fn a_space_has_a_method_for_each_constexpr_and_option() {
    let text = text("", ADD);
    for part in [
        "impl :: tilewright :: launch :: Constexprs for AddRowsConsts { type Values = [:: core :: primitive :: i64 ; 2usize] ;",
        "& [\"BLOCK\" , \"FLAG\"]",
        "pub struct AddRowsSpace (:: tilewright :: tune :: Space < AddRowsConsts >) ;",
        "pub fn BLOCK (self , values : impl :: tilewright :: tune :: Values < :: core :: primitive :: usize >) -> Self",
        "pub fn FLAG (self , values : impl :: tilewright :: tune :: Values < :: core :: primitive :: bool >) -> Self",
        "pub fn num_stages (self , values : impl :: tilewright :: tune :: Values < :: core :: primitive :: u32 >)",
        "pub fn space () -> AddRowsSpace",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    let own = super::launchers::text("", "fn k<const num_warps: u32>() {}");
    assert_eq!(own.matches("pub fn num_warps").count(), 1, "a constexpr of that name comes first: {own}");
}

#[test]
fn what_is_assumed_has_a_field_for_each_argument_that_is_not_folded() {
    let source = "fn k<T: Num>(x: Ptr<T>, out: PtrMut<T>, t: TensorDesc<T, { [4, 4] }>, eps: Const<f32>, o: Option<Ptr<T>>, n: T) {}";
    let text = text("", source);
    for part in [
        "struct KAssumed {",
        "pub x : :: tilewright :: launch :: AssumedBuffer ,",
        "pub out : :: tilewright :: launch :: AssumedBuffer ,",
        "pub t : :: tilewright :: launch :: AssumedTensor ,",
        "pub o : :: tilewright :: launch :: AssumedBuffer ,",
        "pub n : :: tilewright :: launch :: AssumedScalar }",
        ":: tilewright :: launch :: CompileRequest :: < KAssumed >",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    let folded = super::launchers::text("", "fn k(eps: Const<f32>) {}");
    assert!(folded.contains("CompileRequest :: < () >") && !folded.contains("KAssumed"), "{folded}");
}

#[test]
fn arguments_by_name_have_the_types_that_the_launcher_takes() {
    let source = "pub fn k<T: Num, A: Num, const N: usize>(x: Ptr<T>, x_arg: PtrMut<A>, alpha: T, n: Const<i32>) {}";
    let text = text("", source);
    for part in [
        "pub struct KArgs < T : :: tilewright :: Num , XArg , XArgArg > {",
        "pub x : XArg ,",
        "pub x_arg : XArgArg ,",
        "pub alpha : T ,",
        "pub n : :: core :: primitive :: i32 }",
        "impl < T : :: tilewright :: Num , XArg , XArgArg > KArgs < T , XArg , XArgArg > {",
        "pub fn call < 'buffers , A : :: tilewright :: Num > (self , consts : KConsts)",
        "XArg : :: tilewright :: launch :: PtrArg < 'buffers , T >",
        "consts . call :: < T , A > (self . x , self . x_arg , self . alpha , self . n)",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    assert!(!self::text("", "fn k() {}").contains("KArgs"), "without parameters there is nothing to name");
}

#[test]
fn constexprs_with_defaults_are_left_out_where_they_are_not_said() {
    let source = "fn rows<T: Num, const HALF: usize = { BLOCK / 2 }, const BLOCK: usize, const CAUSAL: bool = true>(
        out: PtrMut<T>,
    ) { store(out + arange(0, HALF), 1 as T); }";
    let text = text("", source);
    for part in [
        "fn rows < 'buffers , T : :: tilewright :: Num , const BLOCK : :: core :: primitive :: usize > (",
        "RowsConsts :: new (BLOCK) . call :: < T > (out)",
        "pub const fn new (BLOCK : :: core :: primitive :: usize) -> Self",
        "let HALF : :: core :: primitive :: usize = BLOCK / 2 ; let CAUSAL : :: core :: primitive :: bool = true ;",
        "RowsConsts { HALF , BLOCK , CAUSAL }",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    assert!(!self::text("", ADD).contains("const fn new"), "without defaults the struct is written out");
}

#[test]
fn keys_and_arguments_are_in_order() {
    let text = text("", ADD);
    let parts = [
        ". dtype :: < T > ()",
        ". constant (self . BLOCK as :: core :: primitive :: i64)",
        ". constant (self . FLAG as :: core :: primitive :: i64))",
        ". ptr (x)",
        ". ptr_mut (out)",
        ". scalar (n)",
        ". const_scalar (eps)",
    ];
    assert!(text.contains(&parts.join(" ")), "{text}");
}

#[test]
fn an_unsafe_kernel_has_an_unsafe_call_and_a_safe_launcher() {
    let text = text("", "unsafe fn k(out: PtrMut<f32>) { store(out, 1.0); }");
    assert!(text.contains("launch :: UnsafeCall") && !text.contains("# [allow (unsafe"), "{text}");
    assert!(items("", "unsafe fn k() {}").iter().all(|i| !matches!(i, Item::Fn(f) if f.sig.unsafety.is_some())));
}

#[test]
fn attributes_set_defaults_and_the_path() {
    let text = text("num_warps = 8, num_stages = 3, max_registers = 96, crate = other::tiles", ADD);
    assert!(text.contains("num_warps : :: core :: option :: Option :: Some (8u32)"), "{text}");
    assert!(text.contains("num_stages : :: core :: option :: Option :: Some (3u32)"), "{text}");
    assert!(text.contains("max_registers : :: core :: option :: Option :: Some (96u32)"), "{text}");
    assert!(text.contains("other :: tiles :: launch :: Call") && !text.contains(":: tilewright"), "{text}");
}

#[test]
fn kernels_that_ask_for_warps_have_a_default() {
    let source = "fn k(out: PtrMut<i32>) { store(out, num_warps()); }";
    let option = |attr, value: &str| {
        let text = text(attr, source);
        assert!(text.contains(&format!("num_warps : :: core :: option :: Option :: {value}")), "{text}");
    };
    option("", "Some (4u32)");
    option("num_warps = 16", "Some (16u32)");
}

#[test]
fn optional_arguments_have_methods_of_their_own() {
    let source = "fn k<T: Num>(
        b: Option<Ptr<T>>, c: Option<PtrMut<T>>, a: Option<TensorDesc<T, { [16] }>>, s: Option<f32>,
        #[in_place(out)] x: Ptr<T>, e: Const<i32>, out: PtrMut<T>,
    ) {}";
    let text = text("", source);
    for part in [
        "fn k < 'buffers , T : :: tilewright :: Num > (b : impl :: tilewright :: launch :: OptionalPtrArg < 'buffers , T > ,",
        "s : :: core :: option :: Option < :: core :: primitive :: f32 > ,",
        "x : impl :: tilewright :: launch :: InPlaceArg < 'buffers , T > ,",
        ". optional_ptr (b) . optional_ptr_mut (c) . optional_desc (a) . optional_scalar (s) . ptr_or_in_place (x)",
        "target : :: tilewright :: Target , b : :: core :: primitive :: bool , c : :: core :: primitive :: bool ,",
        ". given (b) . given (c) . given (a) . given (s) . given (x) . const_scalar (e)) } . compile (target)",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
}

#[test]
fn contraction_can_be_forbidden() {
    let source = "fn k(x: Ptr<f32>, out: PtrMut<f32>) { store(out, load(x) * 2.0 + 1.0); }";
    let fused = |attr| func_with(attr, source).ops.iter().filter(|op| op.flags.contract).count();
    assert_eq!((fused(""), fused("contract = false")), (2, 0));
    let subnormals = |attr| func_with(attr, source).subnormals;
    assert_eq!(
        ["", "flush = false", "flush = true"].map(subnormals),
        [Subnormals::Kept, Subnormals::Kept, Subnormals::Flushed]
    );
}

#[test]
fn constants_of_the_crate_are_checked_by_rustc_and_part_of_the_key() {
    let text = text(
        "",
        "fn k(out: PtrMut<f32>, ints: PtrMut<i32>) { store(ints + arange(0, WIDTH), a::LIMIT); store(out, SCALE); }",
    );
    for part in [
        "const CONSTANT_0 : :: core :: primitive :: usize = WIDTH ;",
        "const CONSTANT_1 : :: core :: primitive :: i32 = a :: LIMIT ;",
        "const CONSTANT_2 : :: core :: primitive :: f32 = SCALE ;",
        ". constant (Self :: CONSTANT_0 as :: core :: primitive :: i64) . constant (Self :: CONSTANT_1",
        ". const_scalar (Self :: CONSTANT_2)",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
}

#[test]
fn a_wrong_body_leaves_the_launcher_as_it_is() {
    let right = text("", ADD);
    let (tokens, messages) = expand("", &ADD.replace("i < n", "i < m"));
    assert_eq!(messages.len(), 2);
    assert_eq!(literal_after(tokens.clone(), "ir").as_deref(), Some(""));
    let wrong: String = tokens.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
    let head = |text: &str| text.split("fn kernel").next().map(|t| t.split_whitespace().collect::<String>());
    assert_eq!(head(&right), head(&wrong));
}

#[test]
fn a_function_that_is_not_found_leaves_the_launcher_as_it_is() {
    let source = ADD.replace("load(x + i, mask = i < n)", "missing(x)");
    let steps = crate::expand::expand(proc_macro2::TokenStream::new(), source.parse().expect("tokens"));
    let file: File = syn::parse2(steps).expect("items");
    let launcher = |items: &[Item]| items.iter().take(12).map(|i| i.to_token_stream().to_string()).collect::<String>();
    assert_eq!(launcher(&file.items), launcher(&items("", ADD)));
    assert!(matches!(&file.items[12..], [Item::Macro(call)] if call.mac.path.is_ident("missing")));
}

#[test]
fn lines_are_the_users_own() {
    let (tokens, _) = expand("", ADD);
    let text = tokens.to_string();
    assert!(text.contains("store(out + i, load(x + i, mask = i < n), mask = i < n);"), "{text}");
}

#[test]
fn wrong_arguments_of_the_attribute_are_refused() {
    let source = "fn k() {}";
    for (attr, message) in [
        (
            "num_warp = 8",
            "1:1: unknown argument `num_warp`; `#[kernel]` takes `num_warps`, `num_stages`, `max_registers`, `contract`, `flush`, `crate`\nhelp: did you mean `num_warps`?",
        ),
        ("num_warps = 3", "1:13: `num_warps` is a power of two from 1 to 32"),
        ("max_registers = 300", "1:17: `max_registers` is a number from 16 to 255"),
        ("num_warps", "1:1: `num_warps` needs a value\nhelp: write `num_warps = ..`"),
        ("contract = 1", "1:12: `contract` is `true` or `false`"),
        ("flush = yes", "1:9: `flush` is `true` or `false`"),
        ("flush", "1:1: `flush` needs a value\nhelp: write `flush = ..`"),
        ("num_stages = 2, num_stages = 3", "1:17: `num_stages` is given twice"),
    ] {
        assert_eq!(expand(attr, source).1, [message], "{attr}");
    }
}
