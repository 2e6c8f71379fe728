import"./chunk-ZXK6C35R.js";
