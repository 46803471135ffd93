# genkey, genpsk, pubkey.

key=yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=
INPUT=$key same "keys: pubkey" pubkey
INPUT=$key$'\n' same "keys: pubkey of a line" pubkey
INPUT=$key$'\r\n \t\v\f\n' same "keys: pubkey of a key and white space" pubkey
INPUT=//////////////////////////////////////////8= same "keys: pubkey of a key that is not clamped" pubkey
INPUT=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA= same "keys: pubkey of the all-zero key" pubkey
INPUT="" same "keys: pubkey of nothing" pubkey
INPUT=${key%=} same "keys: pubkey of a key that is too short" pubkey
INPUT=" $key" same "keys: pubkey of a key after a space" pubkey
INPUT=${key/+/_} same "keys: pubkey of another alphabet" pubkey
INPUT=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAB= same "keys: pubkey of a key with stray bits" pubkey
INPUT="$key x" same "keys: pubkey with something after the key" pubkey
INPUT="${key/+/_} x" same "keys: pubkey of a bad key with something after it" pubkey

# What is random is judged by its form.
form() { # TITLE COMMAND : the length, and for a private key that it is clamped
  local title=wg/$1 who text
  chosen "$title" || return
  for who in reference ours; do
    perform $who "$2"
    text=$(<"$PLACE/seen/$who/out")
    if [[ $2 == genkey ]]; then
      printf '%s' "$text" | base64 -d | od -An -tu1 -v |
        awk '{ for (i = 1; i <= NF; i++) b[n++] = $i } END { print (b[0] % 8 == 0 && b[31] >= 64 && b[31] < 128) }' >"$PLACE/seen/$who/out"
    else
      echo "${#text}" >"$PLACE/seen/$who/out"
    fi
  done
  expect_reference
  judge "$title"
}
form "keys: genkey is clamped" genkey
form "keys: genpsk is a key" genpsk

to_file() { # TITLE MODE COMMAND : the warning about a file that everyone can read
  local title=wg/$1 who
  chosen "$title" || return
  for who in reference ours; do
    mkdir -p "$PLACE/seen/$who"
    rm -f key "$PLACE/seen/$who"/*
    install -m "$2" /dev/null key
    PATH=$PLACE/$who/bin:$PATH wg "$3" >>key 2>"$PLACE/seen/$who/err"
    echo "$? $(stat -c %s key)" >"$PLACE/seen/$who/code"
  done
  expect_reference
  judge "$title"
}
to_file "keys: genkey to a file of one's own" 600 genkey
to_file "keys: genkey to a file that all may read" 604 genkey
to_file "keys: genpsk to a file that all may write" 602 genpsk

full() { # TITLE COMMAND : better than the original, which says nothing and ends with 0
  local title=wg/$1 said code
  chosen "$title" || return
  said=$(PATH=$PLACE/ours/bin:$PATH wg "$2" 2>&1 >/dev/full)
  code=$?
  [[ $code == 1 && $said == "wg: cannot write to standard output: "* ]] && verdict ok "$title" || verdict FAIL "$title: $code $said"
}
full "keys: a key that could not be written is a failure" genkey
