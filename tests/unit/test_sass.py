"""Descriptors of matmuls in machine code: those that a path leaves out are found, and others are not taken for that."""

from tests.compiling.sass import mistakes

# Two loops, and before each what it needs. The matmul of the second reads what the first has for its matmul, too.
BEGIN = """
 /*0000*/ ULDC UR10, c[0x0][0x210] ;
 /*0010*/ USGXT.U32 UR6, UR10, 0xe ;
"""
DESCRIPTORS = """
 /*0020*/ UIADD3 UR4, UP0, UR6, 0x2, URZ ;
 /*0030*/ UIADD3.X UR5, URZ, 0x40000040, URZ, UP0, !UPT ;
"""
SKIP = " /*0040*/ @P0 BRA `(.L_x_2) ;\n"
FIRST = """
.L_x_1:
 /*0050*/ UIADD3.64 UR6, UR4, 0x200, URZ ;
 /*0060*/ HGMMA.64x64x16.F32.BF16 R24, gdesc[UR4], RZ, !UPT ;
 /*0070*/ @!P1 BRA `(.L_x_1) ;
"""
SECOND = """
.L_x_2:
 /*0080*/ UMOV UR18, UR10 ;
 /*0090*/ UMOV UR19, 0x40000040 ;
 /*00a0*/ HGMMA.64x64x16.F32.BF16 R24, R88, gdesc[UR16].tnspB, R24 ;
 /*00b0*/ IMAD.U32 R120, RZ, RZ, UR5 ;
 /*00c0*/ R2UR UR17, R120 ;
 /*00d0*/ UMOV UR16, UR4 ;
 /*00e0*/ HGMMA.64x64x16.F32.BF16 R24, gdesc[UR16], R24 ;
 /*00f0*/ @!P2 BRA `(.L_x_2) ;
 /*0100*/ EXIT ;
"""


def test_a_descriptor_is_written_on_every_path() -> None:
    assert list(mistakes(BEGIN + DESCRIPTORS + SKIP + FIRST + SECOND)) == []
    assert list(mistakes(BEGIN + SKIP + DESCRIPTORS + FIRST + SECOND)) == [
        "00e0 HGMMA.64x64x16.F32.BF16 reads UR16 and UR17, which a path does not write"
    ]


def test_what_was_in_a_register_before_is_no_descriptor() -> None:
    """As where a path leaves one out, but others have used its registers."""
    before = "".join(f" /*000{place}*/ ULDC UR{place}, c[0x0][0x220] ;\n" for place in (4, 5))
    assert list(mistakes(BEGIN + before + SKIP + DESCRIPTORS + FIRST + SECOND)) == [
        "00e0 HGMMA.64x64x16.F32.BF16 reads UR17, which is ?"
    ]


def test_halves_are_followed_through_a_swap() -> None:
    swapped = DESCRIPTORS.replace("UR4", "UR0").replace("UR5", "UR4").replace("UR0", "UR5")
    swap = "".join(
        f" /*003{place}*/ ULOP3.LUT UR{to}, UR5, UR4, URZ, 0x3c, !UPT ;\n" for place, to in enumerate((5, 4, 5))
    )
    assert list(mistakes(BEGIN + swapped + swap + SKIP + FIRST + SECOND)) == []
    assert len(list(mistakes(BEGIN + swapped + SKIP + FIRST + SECOND))) == 3


def test_numbers_of_64_bits_are_taken_from_descriptors() -> None:
    """As of heads of 32: the upper half is 0 - 0x7fffffdf, and one less for the carry."""
    taken = """
 /*0050*/ UMOV UR26, 0xfffffffe ;
 /*0051*/ UMOV UR27, 0x7fffffdf ;
 /*0052*/ UMOV UR7, URZ ;
 /*0053*/ UIADD3.64 UR4, UR6, -UR26, URZ ;
 /*0060*/ HGMMA.64x64x16.F32.BF16 R24, R88, gdesc[UR2], R24 ;
 /*0070*/ EXIT ;
"""
    assert list(mistakes(BEGIN + taken)) == []
    (told,) = mistakes(BEGIN + taken.replace("0x7fffffdf", "0x1"))
    assert told.endswith("reads UR5, which is 0xfffffffe")
