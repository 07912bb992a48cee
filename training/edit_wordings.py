"""Wordings of instructions, one list of frames for each kind of edit.

Those in the *_HELD lists never occur in training; every single word in them does. In braces: r what is meant, c a colour, o an object,
p "at the top", t "the top", v and w the word before and after, s and k the pictures that give shape and colour.
"""

COLOR = ["make {r} {c}", "make {r} {c}", "change the color of {r} to {c}", "change {r} to {c}", "paint {r} {c}", "turn {r} {c}", "color {r} {c}",
         "recolor {r} to {c}", "{r} should be {c}", "give {r} a {c} color", "{r} in {c}", "set the color of {r} to {c}", "let {r} be {c}",
         "use {c} for {r}", "draw {r} in {c}", "{r} should get a {c} color", "let the color of {r} be {c}"]
COLOR_HELD = ["turn the color of {r} to {c}", "paint {r} in {c}", "the color of {r} should be {c}", "change the color of {r} into {c}",
              "make the color of {r} {c}", "recolor {r} in {c}", "give {r} the color {c}"]
REMOVE = ["remove {r}", "remove {r}", "delete {r}", "erase {r}", "take away {r}", "take {r} away", "get rid of {r}", "remove {r} from the picture",
          "clear {r}", "{r} should go away", "the picture without {r}", "wipe out {r}", "take {r} out", "let {r} go", "{r} away", "clear {r} from the picture",
          "get {r} out of the picture", "wipe away {r}"]
REMOVE_HELD = ["delete {r} from the picture", "erase {r} from the picture", "clear away {r}", "wipe {r} away", "make {r} go away",
               "take {r} out of the picture", "let {r} go away"]
ADD = ["add {o} {p}", "add {o} {p}", "draw {o} {p}", "put {o} {p}", "place {o} {p}", "insert {o} {p}", "there should be {o} {p}", "{p} add {o}",
       "also add {o} {p}", "add {o} to the picture {p}", "show {o} {p}", "and {o} {p}"]
ADD_HELD = ["{p} draw {o}", "{p} put {o}", "also draw {o} {p}", "also put {o} {p}", "insert {o} in the picture {p}", "there should also be {o} {p}",
            "{p} there should be {o}"]
MOVE = ["move {r} to {t}", "move {r} to {t}", "put {r} {p}", "shift {r} to {t}", "place {r} {p}", "bring {r} to {t}", "{r} should be {p}",
        "{r} should go to {t}", "move {r} so that it is {p}", "{r} {p}", "let {r} be {p}",
        "take {r} and put it {p}", "take {r} and move it to {t}", "make {r} move to {t}", "shift {r}, it should be {p}", "bring {r} {p}", "let {r} move to {t}"]
MOVE_HELD = ["shift {r} so that it is {p}", "take {r} to {t}", "make {r} go to {t}", "{r} should move to {t}", "put {r} so that it is {p}",
             "let {r} go to {t}", "bring {r} so that it is {p}"]
REPLACE = ["replace {r} with {o}", "replace {r} with {o}", "replace {r} by {o}", "turn {r} into {o}", "change {r} into {o}", "change {r} to {o}",
           "make {r} {o}", "swap {r} for {o}", "put {o} in place of {r}", "{r} should be {o}", "{o} instead of {r}", "{r} should turn into {o}"]
REPLACE_HELD = ["swap {r} with {o}", "draw {o} instead of {r}", "put {o} instead of {r}", "make {r} into {o}", "{r} should change into {o}",
                "draw {o} in place of {r}", "let {r} turn into {o}"]
GROUND = ["make the background {c}", "make the background {c}", "change the background to {c}", "change the background color to {c}",
          "paint the background {c}", "turn the background {c}", "set the background to {c}", "put it on a {c} background", "use a {c} background",
          "{c} background", "the background should be {c}", "fill the background with {c}", "color the background {c}", "change to a {c} background"]
GROUND_HELD = ["change the color of the background to {c}", "paint the background in {c}", "the background color should be {c}",
               "give it a {c} background", "set the background color to {c}", "let the background be {c}", "replace the background with {c}"]
REWRITE = ["change the word to {w}", "change the word to {w}", "change {v} to {w}", "replace the word with {w}", "replace {v} with {w}",
           "make it say {w}", "it should say {w}", "write {w} instead of {v}", "write {w} instead", "change the text to {w}",
           "the word should be {w}", "turn the word into {w}", "swap the word for {w}", "replace {v} by {w}", "let it say {w}"]
REWRITE_HELD = ["change the word {v} to {w}", "the text should say {w}", "replace the text by {w}", "write {w} instead of the word",
                "turn {v} into {w}", "the word should say {w}", "swap {v} for {w}"]
WRITE = ["write {w} in {c}{p}", "write {w} in {c}{p}", "write the word {w} in {c}{p}", "add the word {w} in {c}{p}", "add the text {w} in {c}{p}",
         "put the word {w} in {c} letters{p}", "draw the letters {w} in {c}{p}", "write {w} in {c} letters{p}", "add {c} text saying {w}{p}",
         "print {w} in {c}{p}", "write {w}{p} in {c}", "the word {w} in {c}{p}", "print {w} in {c} letters{p}",
         "print {c} letters saying {w}{p}", "put {c} text saying {w}{p}"]
WRITE_HELD = ["put the text {w} in {c}{p}", "print the word {w} in {c}{p}", "write the text {w} in {c} letters{p}", "add the letters {w} in {c}{p}",
              "draw the word {w} in {c}{p}", "print {c} text saying {w}{p}", "put {w} in {c} letters{p}"]
TWO = ["the shape of {s} in the color of {k}", "the shape of {s} with the color of {k}", "give the shape of {s} the color of {k}",
       "make the shape in {s} the color of {k}", "take the shape of {s} and the color of {k}", "use the shape of {s} and the color of {k}",
       "use the color of {k} for the shape of {s}", "paint the shape of {s} in the color of {k}", "take the color of {k} and the shape of {s}",
       "color the shape in {s} with the color of {k}", "the shape from {s}, the color from {k}", "use the shape from {s} with the color from {k}",
       "draw the color of {k} on the shape of {s}", "the color from {k}, the shape from {s}"]
TWO_HELD = ["draw the shape of {s} in the color of {k}", "take the shape from {s} and the color from {k}", "the color of {k} on the shape of {s}",
            "paint the shape in {s} with the color from {k}", "use the color from {k} and the shape from {s}",
            "make the shape of {s} the color of {k}", "the color of {k} for the shape of {s}"]
PICTURES = [("picture 1", "picture 2"), ("picture 1", "picture 2"), ("the first picture", "the second picture"), ("image 1", "image 2"),
            ("the first image", "the second image"), ("the first", "the second")]
POLITE = ["", "", "", "", "", "", "please ", "now ", "just "]

GOALS = {
    "left": ["the left", "the left side"], "right": ["the right", "the right side"], "top": ["the top", "the top side"],
    "bottom": ["the bottom", "the bottom side"], "center": ["the center", "the middle", "the centre"],
    "top left": ["the top left corner", "the top left", "the upper left corner"],
    "top right": ["the top right corner", "the top right", "the upper right corner"],
    "bottom left": ["the bottom left corner", "the bottom left", "the lower left corner"],
    "bottom right": ["the bottom right corner", "the bottom right", "the lower right corner"],
}
